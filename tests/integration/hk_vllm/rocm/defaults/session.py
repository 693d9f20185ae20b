"""Finds vLLM's choice for each layer of the matrix of defaults, on an MI355X: JSON on stdout.

    python -m tests.integration.hk_vllm.rocm.defaults.session [--aiter]

It is one process with HK_BACKEND=1, for all settings with AITER installed or for all without.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import Any

from tests.integration.hk_vllm.rocm import rocm_platform
from tests.integration.hk_vllm.rocm.platform_session import load_plugins
from tests.integration.shared.defaults.models import LAYERS, Attention
from tests.integration.shared.defaults.traffic import AUTO, E5M2, FP8

CACHES = (AUTO, FP8, E5M2)
VARIABLE = "VLLM_ROCM_USE_AITER"


@dataclass(frozen=True)
class Setting:
    """One way to start vLLM, by which it chooses an attention backend without a flag.

    `installed`: AITER is; `variable`: VLLM_ROCM_USE_AITER, None: unset. `connector`: a KV
    connector, which offloads or transfers the cache.
    """

    installed: bool = True
    variable: str | None = None
    connector: bool = False

    def __str__(self) -> str:
        """The setting's words in the table."""
        words = ["a KV connector"] * self.connector
        if not self.installed:
            words.append("AITER not installed")
        if self.variable is not None:
            words.append(f"`{VARIABLE}={self.variable}`")
        return ", ".join(words) or "no flag"


DEFAULTS = [
    Setting(installed, variable, connector)
    for connector in (False, True)
    for installed, variable in ((True, None), (True, "1"), (False, None))
]
"""The matrix's settings."""
AITER_OFF = [Setting(variable="0", connector=connector) for connector in (False, True)]
"""Settings that behave like those without the variable, as a test holds."""


def main(installed: bool) -> None:
    rocm_platform.pretend("gfx950", installed)
    load_plugins("1")
    answers = {}
    for setting in DEFAULTS + AITER_OFF:
        if setting.installed == installed:
            start(setting)
            answers[str(setting)] = {
                layer.name: {cache: choose(setting, layer, cache) for cache in CACHES}
                for layer in LAYERS
            }
    json.dump(answers, sys.stdout)


def start(setting: Setting) -> None:
    """Prepare vLLM to choose as in a process of its own.

    vLLM reads its environment when it is imported, and keeps what it has chosen.
    """
    from vllm._aiter_ops import rocm_aiter_ops
    from vllm.v1.attention.selector import _cached_get_attn_backend

    os.environ.pop(VARIABLE, None)
    if setting.variable is not None:
        os.environ[VARIABLE] = setting.variable
    rocm_aiter_ops.refresh_env_variables()
    _cached_get_attn_backend.cache_clear()


def choose(setting: Setting, layer: Attention, cache: str) -> dict[str, Any]:
    """The backend, pages and layout that a model of such layers gets, with a cache of `cache`."""
    import torch
    from vllm.config import CacheConfig, KVTransferConfig, VllmConfig, set_current_vllm_config
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.utils import (
        get_supported_kv_cache_layouts,
        resolve_kv_cache_layout,
    )
    from vllm.v1.attention.selector import get_attn_backend

    connector = KVTransferConfig(kv_connector="OffloadingConnector", kv_role="kv_both")
    config = VllmConfig(kv_transfer_config=connector if setting.connector else None)
    with set_current_vllm_config(config):
        backend = get_attn_backend(
            layer.head_size,
            torch.bfloat16,
            cache,
            has_sink=layer.sinks,
            num_heads=layer.num_heads,
            has_sliding_window=layer.window is not None,
        )
        page = current_platform._preferred_block_size_for_backends(
            [backend], CacheConfig.DEFAULT_BLOCK_SIZE, config
        )
        layouts = [layout.name for layout in get_supported_kv_cache_layouts([backend])]
        layout = resolve_kv_cache_layout(config, [layouts])
    return {
        "path": f"{backend.__module__}.{backend.__qualname__}",
        "block_size": page,
        "layout": layout.name,
        "prefix_caching": config.cache_config.enable_prefix_caching,
    }


if __name__ == "__main__":
    main("--aiter" in sys.argv)
