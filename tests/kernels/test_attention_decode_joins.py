"""Candidates that join decode's partial results otherwise (tests/kernels/candidates), in the
emulator against float64, with every check on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from hk_backend import _emulator
from hk_backend.kernels import KernelEntry
from tests.kernels.attention_decode_launch import DecodeLaunch
from tests.kernels.attention_launch import passes
from tests.kernels.candidates import built
from tests.kernels.candidates.decode import by_name
from tests.ops.cases import Case

CASES = (
    (Case(lengths=((1, 900), (6, 70), (0, 0), (1, 33)), num_heads=16, num_kv_heads=2), 3),
    (Case(lengths=((2, 2100), (1, 40), (1, 900)), num_heads=4, num_kv_heads=2), 11),
    (Case(lengths=((1, 12000),), num_heads=4, num_kv_heads=1), 40),
    (Case(lengths=((3, 1400), (1, 80)), num_heads=2, sliding_window=700, sinks=True), 2),
    (Case(lengths=((2, 1300),), num_heads=2, sinks=True), 3),
)
"""Requests that some workgroups share, one of them 40, with windows and sinks."""
SAFE, BEYOND = 1.0, 8.0
"""Magnitudes of queries and keys: within the range of the maximum that all parts have, and not."""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KernelEntry]:
    folder = tmp_path_factory.mktemp("candidates")
    return by_name(built(folder, "attention_decode_joins", "attention_decode"))


class Merged(DecodeLaunch):
    """A launch that leaves its partial results to a second one."""

    merge: KernelEntry

    def _launch(self, entry: KernelEntry, *arguments: Any) -> _emulator.Report:
        first = super()._launch(entry, *arguments)
        assert [finding.message for finding in first.findings] == []
        return super()._launch(self.merge, *arguments)


class Added(DecodeLaunch):
    """A launch with room for sums, which are zeros before and after it."""

    def _reserve(self, shares: int) -> None:
        super()._reserve(shares)
        self.partial = torch.zeros(2 * self.partial.numel(), dtype=torch.float32)

    @property
    def sums(self) -> torch.Tensor:
        return self.partial[self.partial.numel() // 2 :]


def launch_of(
    kernels: Mapping[str, KernelEntry], name: str, case: Case, shares: int
) -> DecodeLaunch:
    kinds = {"last": DecodeLaunch, "left": Merged, "added": Added}
    found = kinds[name](kernels[name], case, shares)
    if isinstance(found, Merged):
        found.merge = kernels["merge"]
    return found


def test_all_of_them_are_tested(kernels: Mapping[str, KernelEntry]) -> None:
    assert set(kernels) == {"last", "left", "merge", "added"}
    assert not any(entry.spills or entry.scratch for entry in kernels.values())


@pytest.mark.parametrize("name", ["last", "left", "added"])
@pytest.mark.parametrize("magnitude", [SAFE, BEYOND])
def test_results_in_any_order(
    kernels: Mapping[str, KernelEntry], name: str, magnitude: float
) -> None:
    for case, shares in CASES:
        launch = launch_of(kernels, name, case.but(magnitude=magnitude), shares)
        for seed in range(3):
            passes(launch, seed)
            if isinstance(launch, Added):
                assert not launch.sums.any()


@pytest.mark.parametrize(("magnitude", "leaves"), [(SAFE, False), (BEYOND, True)])
def test_only_scores_beyond_the_range_are_left_unadded(
    kernels: Mapping[str, KernelEntry], magnitude: float, leaves: bool
) -> None:
    """A part that adds its outputs does not write them to its own place."""
    case = Case(lengths=((1, 12000),), num_heads=4, num_kv_heads=1, magnitude=magnitude)
    launch = launch_of(kernels, "added", case, 40)
    passes(launch)
    rows = launch.entry.tile.rows
    places = launch.partial[: launch.partial.numel() // 2].view(
        -1, rows * (launch.entry.tile.depth + 2)
    )
    assert bool(places[:, 2 * rows :].any()) == leaves
