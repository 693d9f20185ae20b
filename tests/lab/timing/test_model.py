"""The model's figures from traced samples, and the choice among kernels that serve a shape."""

from __future__ import annotations

import pytest

from hk_backend.kernels.catalogue import NoKernel, catalogue
from hk_backend.kernels.gemm_choice import planned
from hk_backend.kernels.gemm_plan import tiles_of
from hk_backend.kernels.masks import NO_MASK
from hk_backend.lab.timing.family import serving
from hk_backend.lab.timing.workloads import gemm
from hk_backend.lab.timing.workloads.attention_prefill.shape import batch

# --- which of several kernels serves a shape ------------------------------------------------------


@pytest.mark.parametrize(("tokens", "rows"), [(1024, 256), (256, 128), (64, 64)])
def test_the_planner_chooses_between_attention_kernels(tokens: int, rows: int) -> None:
    """Few rows get small tiles, so that more compute units have some."""
    facts = {"dtype": "bf16", "stored": "bf16", "keys": "packed", "mask": NO_MASK, "padded": False}
    family = catalogue("gfx950").alternatives("attention_prefill", head_size=128, **facts)
    assert not isinstance(family, NoKernel)
    shape = batch(1, tokens, 8, 8, True)
    entry, launch = serving(family, shape, 16)
    assert entry.tile.rows == rows
    assert len(launch.work) == 8 * tokens // rows


def test_the_planner_chooses_between_gemm_kernels() -> None:
    """The choice has the kernel and the splits that a device would take."""
    family = catalogue("gfx950").alternatives("gemm", a="bf16", b="bf16")
    assert not isinstance(family, NoKernel)
    for m, n, k in ((4, 512, 8192), (8192, 8192, 64)):
        entry, launch = serving(family, gemm.Shape(m, n, k), 256)
        plan = planned(family, m, n, k, 256)
        assert (entry, len(launch.work)) == (plan.entry, tiles_of(entry, m, n) * plan.splits)
    assert plan.splits == 1 < planned(family, 4, 512, 8192, 256).splits
