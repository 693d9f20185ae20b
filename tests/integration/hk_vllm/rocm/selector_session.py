"""Run vLLM's real ROCm selector over many layers, as one process with one GPU: JSON on stdout.

    python -m tests.integration.hk_vllm.rocm.selector_session gfx942 [--aiter]

Each case is selected three times, with the plugin loaded by vLLM's own loader: as vLLM came,
with HK_BACKEND=0, with HK_BACKEND=1.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.integration.hk_vllm.rocm import rocm_platform
from tests.integration.hk_vllm.rocm.selector_cases import CASES, Case


def select(case: Case) -> dict[str, Any]:
    """What the platform answers for one layer, and the class that the layer then gets."""
    import torch
    from vllm.config import AttentionConfig, VllmConfig, set_current_vllm_config
    from vllm.platforms import current_platform
    from vllm.utils.import_utils import resolve_obj_by_qualname
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    from vllm.v1.attention.selector import AttentionSelectorConfig

    layer = {"head_size": 128, "kv_cache_dtype": "auto", "block_size": None, **case.layer}
    layer["dtype"] = getattr(torch, layer.get("dtype", "bfloat16"))
    member = AttentionBackendEnum[case.backend] if case.backend else None
    config = VllmConfig(attention_config=AttentionConfig(backend=member))
    with set_current_vllm_config(config), failing_import(case.missing):
        try:
            path = current_platform.get_attn_backend_cls(
                member, AttentionSelectorConfig(**layer), num_heads=8
            )
        except ValueError as error:
            return {"error": str(error)}
        return {"path": path, **describe(resolve_obj_by_qualname(path))}


@contextmanager
def failing_import(module: str) -> Iterator[None]:
    """Within, importing `module` fails as it does where it is not installed."""
    if not module:
        yield
        return
    imported = sys.modules.pop(module, None)
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]
        if imported is not None:
            sys.modules[module] = imported


def describe(backend: Any) -> dict[str, Any]:
    """What vLLM reads from a backend class."""
    builder, impl = backend.get_builder_cls(), backend.get_impl_cls()
    return {
        "name": backend.get_name(),
        "backend": lineage(backend),
        "builder": lineage(builder),
        "impl": lineage(impl),
        "graphs": builder._cudagraph_support.value,
        "writes_in_forward": backend.forward_includes_kv_cache_update,
        "block_sizes": [
            getattr(size, "base", size) for size in backend.get_supported_kernel_block_sizes()
        ],
        "layouts": [layout.name for layout in backend.supported_kv_cache_layouts() or ()],
    }


def lineage(cls: type) -> list[str]:
    """The class and its bases, as paths, nearest first."""
    return [f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__]


def load_plugins(hk_backend: str) -> None:
    """What a vLLM process does at its start, with `HK_BACKEND` set to a value."""
    import vllm.plugins

    from hk_backend.config import get_config

    os.environ["HK_BACKEND"] = hk_backend
    get_config.cache_clear()
    vllm.plugins.plugins_loaded = False
    vllm.plugins.load_general_plugins()


def main(arch: str, aiter: bool) -> None:
    rocm_platform.pretend(arch, aiter)
    answers: dict[str, dict[str, Any]] = {}
    for phase, hk_backend in (("untouched", None), ("off", "0"), ("on", "1")):
        if hk_backend is not None:
            load_plugins(hk_backend)
        answers[phase] = {name: select(case) for name, case in CASES.items()}
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], "--aiter" in sys.argv)
