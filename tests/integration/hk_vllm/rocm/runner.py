"""Serves a scenario over a parent of parents.py, like e2e/runner.py with that parent in place.

A scenario's name begins with the parent's name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.integration.hk_vllm.e2e import runner
from tests.integration.hk_vllm.rocm import torch_kernels, triton_kernels
from tests.integration.hk_vllm.rocm.parents import PARENTS, Parent
from tests.integration.shared.e2e.scenario import Scenario, load


def prepare() -> None:
    """Import vLLM as on a machine with a GPU, where it takes its Triton kernels."""
    triton_kernels.gpu()
    runner.prepare()


def main(asked: Path, answered: Path) -> None:
    import vllm
    from vllm.plugins import load_general_plugins

    load_general_plugins()  # first, since the parent replaces what these register
    [scenario] = load(Scenario, asked)
    torch_kernels.install()
    parent = PARENTS[scenario.name.partition(" ")[0]]
    parent.install()
    os.environ["VLLM_KV_CACHE_LAYOUT"] = parent.layout
    vllm.LLM = checked(parent)
    runner.main(asked, answered)


def checked(parent: Parent) -> Any:
    """`vllm.LLM` with a check that the engine's cache has the layout and blocks of `parent`."""
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
