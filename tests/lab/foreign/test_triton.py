"""Triton's kernels run on the emulated GPU of both archs, with findings and by the clock.

The driver is a process's only one, so the cases run in processes of their own
(tests/lab/foreign/triton_program.py).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.models import ROOT
from tests.processes import python

pytestmark = pytest.mark.triton


@pytest.mark.engine_proof(foreign=True)
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_every_case(arch: str, tmp_path: Path) -> None:
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    done = python("-m", "tests.lab.foreign.triton_program", arch, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    failed = json.loads(done.stdout.splitlines()[-1])
    assert not failed, "\n".join(failed.values())
