"""Which of several kernels that compute the same serves a shape."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hk_backend.kernels.catalogue import catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.timing import standard


def kernel() -> KernelEntry:
    found = catalogue("gfx950").alternatives("gemm", out="bf16")
    assert isinstance(found, tuple)
    return found[0]


@pytest.mark.parametrize(
    ("tiles", "units", "chosen"),
    [(16, 8, "large"), (15, 8, "small"), (32, 8, "large"), (4, 8, "small")],
)
def test_the_largest_tile_that_gives_every_unit_two_workgroups(
    tiles: int, units: int, chosen: str
) -> None:
    entry = kernel()
    alternatives = (replace(entry, name="large"), replace(entry, name="small"))
    shape = standard.gemm.Shape(tiles * entry.tile.rows, entry.tile.columns, 64)
    found, launch = standard.serving(alternatives, shape, units)
    assert found.name == chosen
    assert len(launch.work) == tiles


def test_one_kernel_serves_whatever_its_grid() -> None:
    entry = kernel()
    assert standard.serving((entry,), standard.square(64), 256)[0] is entry
