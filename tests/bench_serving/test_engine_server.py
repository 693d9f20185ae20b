"""What starts an engine: which module, and what torch then finds in the processor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hk_backend.bench.isa import ISA_LIMITS

SHOWS = """
import sys, torch
print(__name__, sys.argv[1:], torch.cpu._is_avx512_supported(), torch.cpu._is_amx_tile_supported())
"""


def run(folder: Path, **environment: str) -> list[str]:
    (folder / "an_engine.py").write_text(SHOWS)
    command = [sys.executable, "-m", "bench_serving.engine_server", "an_engine", "--port", "1"]
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    settings = {**os.environ, "PYTHONPATH": path, **environment}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=True)
    return done.stdout.split(maxsplit=1)


@pytest.mark.parametrize("held", ["avx2", "avx512"])
def test_the_engine_s_module_is_run_with_its_own_arguments(tmp_path: Path, held: str) -> None:
    name, rest = run(tmp_path, **ISA_LIMITS[held])
    assert name == "__main__"
    assert rest.startswith("['--port', '1']")
    assert rest.split()[-1] == "False"  # no AMX beyond either
    if held == "avx2":
        assert rest.split()[-2] == "False"
