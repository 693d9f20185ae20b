"""Finds the choices of vLLM's real ROCm platform in a process with one GPU: JSON on stdout.

    python -m tests.integration.hk_vllm.rocm.platform_session gfx942 [--aiter]

vLLM's selector chooses for many attention layers, and on gfx950 vLLM also chooses a kernel for a
linear layer of every checkpoint. It does so three times, with the plugin loaded by vLLM's own
loader: as vLLM came, with HK_BACKEND=0, with HK_BACKEND=1. The code objects say what gfx950 serves;
nothing is computed.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

from tests.integration.hk_vllm.rocm import rocm_platform

ROCM_BACKENDS = ("ROCM_ATTN", "ROCM_AITER_FA", "ROCM_AITER_UNIFIED_ATTN", "TRITON_ATTN")
AITER_FA_MODULE = "vllm.v1.attention.backends.rocm_aiter_fa"
NO_AITER_FA = "sinks, without rocm_aiter_fa"
LAYERS: dict[str, dict[str, Any]] = {
    NO_AITER_FA: {"has_sink": True},  # first: vLLM keeps a class that it has made
    "plain": {},
    "head 64 in fp16": {"head_size": 64, "dtype": "float16"},
    "head 256": {"head_size": 256},
    "head 72": {"head_size": 72},
    "head 16": {"head_size": 16},
    "fp32": {"dtype": "float32"},
    "fp8 kv": {"kv_cache_dtype": "fp8"},
    "fp8_e5m2 kv": {"kv_cache_dtype": "fp8_e5m2"},
    "int8 kv per token and head": {"kv_cache_dtype": "int8_per_token_head"},
    "block 16": {"block_size": 16},
    "block 128": {"block_size": 128},
    "block 24": {"block_size": 24},
    "sliding window": {"has_sliding_window": True},
    "sinks": {"has_sink": True},
    "sinks, head 72": {"has_sink": True, "head_size": 72},
    "kv connector": {"use_kv_connector": True},
    "not causal": {"use_non_causal": True},
    "batch invariant": {"use_batch_invariant": True},
    "encoder": {"attn_type": "encoder_only"},
    "decode context parallel": {"use_dcp": True},
    "mla": {"use_mla": True, "head_size": 576},
}
"""Fields of AttentionSelectorConfig (dtype by name). They cover every reason for which the
automatic order passes a backend over, and layers of no backend."""
NO_FLAG, CUSTOM = "no flag", "CUSTOM"
CASES = [(NO_AITER_FA, NO_FLAG)] + [
    (layer, flag)
    for layer in LAYERS
    if layer != NO_AITER_FA
    for flag in (NO_FLAG, *ROCM_BACKENDS, CUSTOM)
]


def select(layer: str, flag: str) -> dict[str, Any]:
    """The platform's answer for one layer, and the class that the layer then gets."""
    import torch
    from vllm.config import AttentionConfig, VllmConfig, set_current_vllm_config
    from vllm.platforms import current_platform
    from vllm.utils.import_utils import resolve_obj_by_qualname
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    from vllm.v1.attention.selector import AttentionSelectorConfig

    facts = {"head_size": 128, "kv_cache_dtype": "auto", "block_size": None, **LAYERS[layer]}
    facts["dtype"] = getattr(torch, facts.get("dtype", "bfloat16"))
    member = None if flag == NO_FLAG else AttentionBackendEnum[flag]
    config = VllmConfig(attention_config=AttentionConfig(backend=member))
    absent = patch.dict(sys.modules, {AITER_FA_MODULE: None})
    missing: AbstractContextManager[Any] = absent if layer == NO_AITER_FA else nullcontext()
    with set_current_vllm_config(config), missing:
        try:
            path = current_platform.get_attn_backend_cls(
                member, AttentionSelectorConfig(**facts), num_heads=8
            )
        except ValueError as error:
            return {"error": str(error)}
        return {"path": path, **describe(resolve_obj_by_qualname(path))}


def describe(backend: Any) -> dict[str, Any]:
    """The facts that vLLM reads from a backend class."""
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
    """Load plugins as a vLLM process does at its start, with this value of HK_BACKEND."""
    import vllm.plugins

    from hk_backend.config import get_config

    os.environ["HK_BACKEND"] = hk_backend
    get_config.cache_clear()
    vllm.plugins.plugins_loaded = False
    vllm.plugins.load_general_plugins()


def watches_sleep() -> bool:
    """Whether HK learns that a worker has its memory back."""
    from vllm.v1.worker.gpu_worker import Worker

    from hk_backend.engine.patching import MARK

    return all(hasattr(getattr(Worker, name), MARK) for name in ("sleep", "discard", "wake_up"))


# -- linear layers

KERNELS = ("fp8_linear", "linear_kernel", "kernel", "ocp_mx_linear")
"""Attributes in which vLLM's methods keep a layer's kernel."""


def lists() -> dict[str, list[str]]:
    """The kernels that vLLM tries on ROCm, in their order, by kind of layer."""
    from vllm.model_executor.kernels import linear
    from vllm.platforms import PlatformEnum

    return {
        name: [kernel.__name__ for kernel in by_platform.get(PlatformEnum.ROCM, [])]
        for name, by_platform in vars(linear).items()
        if name.startswith("_POSSIBLE_") and isinstance(by_platform, dict)
    }


def layers() -> dict[str, dict[str, str]]:
    from tests.integration.shared.checkpoints import LAYERS

    names = (name for name in LAYERS if not name.startswith("hk-"))
    return {name: layer(LAYERS[name].config) for name in names}


def layer(config: dict[str, Any]) -> dict[str, str]:
    """The kernel that vLLM gives to a layer; or its error."""
    import torch

    from hk_backend.config import get_config
    from hk_backend.devices.hip.emulated import emulated_device
    from tests.integration.hk_vllm.linear_layers import config_of, merged
    from tests.integration.shared.checkpoints import WIDTHS, K
    from tests.integration.shared.linear.devices import GFX950

    os.environ["HK_DEVICE"] = GFX950
    get_config.cache_clear()
    emulated_device("gfx950").memory.tensors_on = "cuda"  # this platform's tensors are there
    try:
        made = merged(config_of(config), torch.bfloat16, K, WIDTHS)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    scheme = getattr(made, "scheme", None) or made.quant_method
    scheme = getattr(scheme, "scheme", scheme)  # INC's method has one of its own
    kernels = (getattr(scheme, name, None) for name in KERNELS)
    kernel = next((kernel for kernel in kernels if kernel is not None), scheme)
    return {"kernel": type(kernel).__name__}


def main(arch: str, aiter: bool) -> None:
    rocm_platform.pretend(arch, aiter)
    answers: dict[str, dict[str, Any]] = {}
    from tests.integration.hk_vllm.linear_layers import alone

    with alone():
        for phase, hk_backend in (("untouched", None), ("off", "0"), ("on", "1")):
            if hk_backend is not None:
                load_plugins(hk_backend)
            selected = {f"{layer} / {flag}": select(layer, flag) for layer, flag in CASES}
            found = answers[phase] = {"selected": selected, "watches sleep": watches_sleep()}
            if arch == "gfx950":
                found |= {"lists": lists(), "layers": layers()}
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], "--aiter" in sys.argv)
