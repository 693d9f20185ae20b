"""Fixtures that choose devices as a user would, draw instruction sets, and restore threads."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from hk_backend.config import get_config
from hk_backend.devices.cpu import prepared_attention
from hk_backend.devices.cpu.isas import usable_isas
from tests.seed import draw

ISAS = ("portable", "avx2", "avx512", "avx512_bf16", "amx")
"""Instruction sets from slow to fast; every other test runs on the last one that this machine has.
"""
GPU = "gfx950"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The best instruction set runs every pair of parameters' values; a slower one, every value.

    So does a test without an instruction set run every pair. The commit draws in which cases these
    occur; the other cases are slow. Where a slower one is the best (`make test ISA=avx2`), it runs
    every pair. One that the processor lacks is skipped in one case of each test.
    """
    best = usable_isas()[0]
    groups: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if Path(__file__).parent in item.path.parents and (values := values_of(item)):
            groups[item.nodeid.partition("[")[0], str(values.get("isa", best))].append(item)
    for (test, isa), cases in groups.items():
        drawn = draw(f"{test} on {isa}").sample(cases, len(cases))
        left_out = beyond_a_cover(drawn, 2 if isa in (best, GPU) else 1)
        for item in left_out if isa in (*usable_isas(), GPU) else drawn[1:]:
            item.add_marker(pytest.mark.slow)


def beyond_a_cover(cases: Sequence[pytest.Item], together: int) -> list[pytest.Item]:
    """The cases that others make unnecessary: every `together` values of one occur in another."""

    def groups_of(item: pytest.Item) -> set[tuple[tuple[str, str], ...]]:
        values = sorted((name, repr(value)) for name, value in values_of(item).items())
        return set(itertools.combinations(values, min(together, len(values))))

    left = {item: groups_of(item) for item in cases}
    while left:
        chosen = max(left, key=lambda item: len(left[item]))
        found = left.pop(chosen)
        if not found:
            return [chosen, *left]
        left = {item: groups - found for item, groups in left.items()}
    return []


def values_of(item: pytest.Item) -> dict[str, object]:
    """Return the parameters of `item` by name; none if it is not parametrised."""
    callspec = getattr(item, "callspec", None)
    return dict(callspec.params) if callspec else {}


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run the test once per instruction set; on the emulated GPU if the test says so (`GPU`)."""
    if request.param not in (*usable_isas(), GPU):
        pytest.skip(f"this processor has no {request.param}")
    with _on(f"emulated:{GPU}" if request.param == GPU else f"cpu:{request.param}", monkeypatch):
        yield request.param


@pytest.fixture
def on_gfx950(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the test on the emulated GPU."""
    with _on(f"emulated:{GPU}", monkeypatch):
        yield


@contextmanager
def _on(device: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set HK_DEVICE for the block."""
    monkeypatch.setenv("HK_DEVICE", device)
    get_config.cache_clear()
    yield
    monkeypatch.undo()
    get_config.cache_clear()


@pytest.fixture
def tiny_splits(monkeypatch: pytest.MonkeyPatch, threads: None) -> None:
    """Keys split over more threads than there are cores, and as finely as a plan can."""
    monkeypatch.setattr(prepared_attention, "SPLIT_ELEMENTS", 1)
    torch.set_num_threads(6)


@pytest.fixture(params=[False, True], ids=["whole", "split"])
def splits(request: pytest.FixtureRequest) -> bool:
    """Whether keys are split as finely as they can be."""
    if request.param:
        request.getfixturevalue("tiny_splits")
    return bool(request.param)


@pytest.fixture
def threads() -> Iterator[None]:
    """Restores torch's thread count after a test that changes it."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
