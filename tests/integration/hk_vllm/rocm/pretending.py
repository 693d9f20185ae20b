"""Sessions of vLLM on its ROCm platform (rocm_platform.py), each in a process of its own.

They are forks of one process (shared/e2e/forks.py), which has imported nothing of vLLM. It has
imported the libraries under vLLM, since those take most of the time.
"""

from __future__ import annotations

import importlib
import json
import runpy
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from tests.integration.shared.e2e.engine import Forks, tail

OF_OTHERS = (
    *("torch", "torch._inductor.lowering", "torch._inductor.compile_fx"),
    *("torch.utils.cpp_extension", "transformers", "transformers.modeling_gguf_pytorch_utils"),
    *("transformers.models.auto.image_processing_auto", "compressed_tensors.config"),
    *("openai.types.responses", "fastapi", "aiohttp", "requests", "xgrammar"),
)
"""Modules of other projects that take most of the time of vLLM's import."""
SESSIONS = "tests.integration.hk_vllm.rocm"
FORKS = Forks(f"{SESSIONS}.pretending", {})
FOLDER = tempfile.TemporaryDirectory(prefix="rocm-sessions-")


def prepare() -> None:
    for module in OF_OTHERS:
        importlib.import_module(module)
    assert "vllm" not in sys.modules


def main(asked: Path, answered: Path) -> None:
    """Run a session as `python -m` would."""
    session, *arguments = json.loads(asked.read_text())
    sys.argv = [session, *arguments]
    with answered.open("w") as sink, redirect_stdout(sink):
        runpy.run_module(f"{SESSIONS}.{session}", run_name="__main__", alter_sys=True)


def answers_of(session: str, *arguments: str, aiter: bool | None = None, **variables: str) -> Any:
    """The JSON that the module `session` of this folder writes.

    Args:
        aiter: VLLM_ROCM_USE_AITER; None: not set.
    """
    environment = {"VLLM_LOGGING_LEVEL": "WARNING", **variables}
    if aiter is not None:
        environment["VLLM_ROCM_USE_AITER"] = str(int(aiter))
    folder = Path(tempfile.mkdtemp(dir=FOLDER.name))
    asked, answered, log = (folder / name for name in ("asked", "answered", "log"))
    asked.write_text(json.dumps([session, *arguments]))
    exit_code = FORKS.run(FORKS.module, [asked, answered], log, environment, timeout=300)
    assert exit_code == 0, tail(log.read_text())
    return json.loads(answered.read_text().splitlines()[-1])
