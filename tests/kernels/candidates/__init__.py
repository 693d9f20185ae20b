"""Kernels that were tried, and that no planner selects: tested and timed, not shipped."""

from __future__ import annotations

from pathlib import Path

from hk_backend.kernels import KernelEntry, catalogue
from hk_backend.lab.toolchain import build, compiler

ARCH = "gfx950"
FOLDER = Path(__file__).parent


def built(root: Path, name: str, operator: str) -> tuple[KernelEntry, ...]:
    """The candidates of a source, compiled in the folder `root` beside the project's headers."""
    for link, target in (("csrc", build.ROOT / "csrc"), ("kernels", FOLDER)):
        if not (root / link).exists():
            (root / link).symlink_to(target)
    output, folder = root / "codeobjects", Path("kernels")
    only = [folder / f"{name}.hip"]
    build.build(ARCH, output / ARCH, compiler.find(), only, root, run=False, folder=folder)
    return tuple(catalogue(ARCH, output).families[operator])
