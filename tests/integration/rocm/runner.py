"""One engine process over the parents of parents.py: as e2e/runner.py, with a parent in place.

    python -m tests.integration.rocm.runner SCENARIOS.json RESULTS.json

A scenario's name says what serves it: `stock DTYPE`, `PARENT alone DTYPE`, `PARENT hk DTYPE`.
"""

from __future__ import annotations

import gc
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from tests.e2e.inside import hide_amx
from tests.e2e.scenario import Scenario, load, save
from tests.integration.e2e.runner import serve
from tests.integration.rocm import torch_kernels
from tests.integration.rocm.parents import PARENTS, Parent


def main(scenarios_path: Path, results_path: Path) -> None:
    if os.environ.get("TEST_HIDE_AMX") == "1":
        hide_amx()
    from vllm.plugins import load_general_plugins

    load_general_plugins()  # once per process: before anything is put over what it registers
    torch_kernels.install()
    start_engines_quickly()
    results = []
    for scenario in load(Scenario, scenarios_path):
        print(f"== scenario {scenario.name}", flush=True)
        place(scenario)
        gc.freeze()  # what stands now is no garbage: vLLM collects nine times per engine
        results.append(serve(scenario))
        save(results, results_path)


def start_engines_quickly() -> None:
    """What vLLM searches the whole process for, for a second, at each engine's start: once."""
    from vllm.platforms import current_platform

    once = cache(current_platform.register_triton_kernel_overrides)
    type(current_platform).register_triton_kernel_overrides = staticmethod(once)


def place(scenario: Scenario) -> None:
    """Put the scenario's parent where the platform looks, with or without HK around it."""
    import vllm
    from vllm import envs
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    from vllm.v1.attention.selector import _cached_get_attn_backend

    envs.disable_envs_cache()  # an engine freezes vLLM's variables; the next one has its own
    os.environ.pop("VLLM_KV_CACHE_LAYOUT", None)
    who, *rest = scenario.name.split()
    if who == "stock":
        AttentionBackendEnum.CPU_ATTN.clear_override()
        _cached_get_attn_backend.cache_clear()
        return
    parent = PARENTS[who]
    os.environ["VLLM_KV_CACHE_LAYOUT"] = parent.layout
    parent.install(wrapped=rest[0] == "hk")
    vllm.LLM = checked(parent)


def checked(parent: Parent) -> Any:
    """`vllm.LLM`, refusing to serve if the engine's cache is not the one that `parent` names."""
    from vllm.entrypoints.llm import LLM

    class CheckedLLM(LLM):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            config = self.llm_engine.vllm_config
            found = config.cache_config.kv_cache_layout
            if found != parent.layout:
                raise RuntimeError(f"KV cache layout {found}, expected {parent.layout}")
            for layer in config.compilation_config.static_forward_context.values():
                tokens = layer.kv_cache.shape[2]
                if tokens != parent.kernel_block_size:
                    raise RuntimeError(f"kernel blocks of {tokens} tokens")

    return CheckedLLM


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
