"""Kernels that were tried, and that no planner selects: tested and timed, not shipped."""

from __future__ import annotations

from pathlib import Path

from hk_backend.kernels import KernelEntry, catalogue
from hk_backend.lab.toolchain import build, compiler

ARCH = "gfx950"
FOLDER = Path(__file__).parent


def built(root: Path) -> tuple[KernelEntry, ...]:
    """The candidates of GEMM, compiled in the folder `root` beside the project's headers."""
    for name, target in (("csrc", build.ROOT / "csrc"), ("kernels", FOLDER)):
        (root / name).symlink_to(target)
    output = root / "codeobjects"
    build.build(ARCH, output / ARCH, compiler.find(), root=root, run=False, folder=Path("kernels"))
    return tuple(catalogue(ARCH, output).families["gemm"])
