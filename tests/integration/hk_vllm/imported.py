"""Scripts that run where vLLM is imported and nothing of ours is, in forks (e2e/forks.py)."""

from __future__ import annotations

import importlib
import runpy
import sys
from contextlib import redirect_stdout
from pathlib import Path

VLLM = ("vllm.v1.attention.backends.cpu_attn", "vllm.model_executor.layers.linear")


def prepare() -> None:
    for module in VLLM:
        importlib.import_module(module)
    ours = [name for name in sys.modules if name.split(".")[0] in ("hk_backend", "hk_vllm")]
    assert not ours, ours


def main(script: Path, printed: Path) -> None:
    with printed.open("w") as sink, redirect_stdout(sink):
        runpy.run_path(str(script))
