"""Kernels that were tried, and that no planner selects: tested and timed, not shipped."""

from __future__ import annotations

import re
from pathlib import Path
from unittest import mock

from hk_backend.kernels import KernelEntry, catalogue
from hk_backend.lab.toolchain import build, clocks, compiler

ARCH = "gfx950"
FOLDER = Path(__file__).parent
MATRIX = re.compile(
    clocks.MATRIX.pattern.replace("v_mfma_(?:scale_)?", "v_(?:smfmac|mfma(?:_scale)?)_")
)
"""`clocks.MATRIX`, with sparse instructions: those of 16 columns take 16 clocks, too.

An edit of clocks.py would invalidate the proofs of both engines.
"""


def built(root: Path) -> tuple[KernelEntry, ...]:
    """The candidates of GEMM, compiled in the folder `root` beside the project's headers."""
    for name, target in (("csrc", build.ROOT / "csrc"), ("kernels", FOLDER)):
        (root / name).symlink_to(target)
    output = root / "codeobjects"
    with mock.patch.object(clocks, "MATRIX", MATRIX):
        build.build(
            ARCH, output / ARCH, compiler.find(), root=root, run=False, folder=Path("kernels")
        )
    return tuple(catalogue(ARCH, output).families["gemm"])
