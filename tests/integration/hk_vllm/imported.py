"""Scripts that run where vLLM is imported and nothing of ours is, in forks (e2e/forks.py)."""

from __future__ import annotations

import importlib
import runpy
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what it imports is ours
    from tests.integration.shared.e2e.engine import Forks

VLLM = ("vllm.v1.attention.backends.cpu_attn", "vllm.model_executor.layers.linear")


def prepare() -> None:
    for module in VLLM:
        importlib.import_module(module)
    ours = [name for name in sys.modules if name.split(".")[0] in ("hk_backend", "hk_vllm")]
    assert not ours, ours


def main(script: Path, printed: Path) -> None:
    with printed.open("w") as sink, redirect_stdout(sink):
        runpy.run_path(str(script))


def run_in_fork(forks: Forks, code: str, folder: Path) -> str:
    """Return what `code` prints where vLLM is imported, with HK on."""
    script, printed, log = (folder / name for name in ("script.py", "printed.txt", "log.txt"))
    script.write_text(code)
    exit_code = forks.run(__name__, [script, printed], log, {"HK_BACKEND": "1"})
    assert exit_code == 0, log.read_text()
    return printed.read_text().strip()
