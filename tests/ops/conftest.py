"""Devices chosen as a user would, instruction sets that share tests, and threads put back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from hk_backend.config import get_config
from hk_backend.devices.cpu import attention
from hk_backend.devices.cpu.isas import usable_isas
from tests.seed import draw

ISAS = ("portable", "avx2", "avx512", "avx512_bf16", "amx")
"""From slow to fast; the last one that this machine has is what every other test runs on."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The best instruction set runs every case; a slower one, every value of each parameter.

    The commit draws in which cases those values occur; the other cases are slow. Where a slower
    one is the best (`make test ISA=avx2`), it runs every case. One that the processor lacks is
    skipped in one case of each test.
    """
    best = usable_isas()[0]
    groups: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        isa = values_of(item).get("isa")
        if Path(__file__).parent in item.path.parents and isa not in (None, best):
            groups[item.nodeid.partition("[")[0], str(isa)].append(item)
    for (test, isa), cases in groups.items():
        drawn = draw(f"{test} on {isa}").sample(cases, len(cases))
        for item in beyond_a_cover(drawn) if isa in usable_isas() else drawn[1:]:
            item.add_marker(pytest.mark.slow)


def beyond_a_cover(cases: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield cases whose parameters have only values that cases before them have."""
    seen: set[tuple[str, str]] = set()
    for item in cases:
        values = {(name, repr(value)) for name, value in values_of(item).items()}
        if values <= seen:
            yield item
        seen |= values


def values_of(item: pytest.Item) -> dict[str, object]:
    """Return the parameters of `item` by name; none if it is not parametrised."""
    callspec = getattr(item, "callspec", None)
    return dict(callspec.params) if callspec else {}


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run the test once per instruction set."""
    if request.param not in usable_isas():
        pytest.skip(f"this processor has no {request.param}")
    with _on(f"cpu:{request.param}", monkeypatch):
        yield request.param


@pytest.fixture
def on_gfx950(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On the emulated GPU."""
    with _on("emulated:gfx950", monkeypatch):
        yield


@contextmanager
def _on(device: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With HK_DEVICE."""
    monkeypatch.setenv("HK_DEVICE", device)
    get_config.cache_clear()
    yield
    monkeypatch.undo()
    get_config.cache_clear()


@pytest.fixture
def tiny_splits(monkeypatch: pytest.MonkeyPatch, threads: None) -> None:
    """Keys split over more threads than there are cores, and as finely as a plan can."""
    monkeypatch.setattr(attention, "SPLIT_ELEMENTS", 1)
    torch.set_num_threads(6)


@pytest.fixture
def threads() -> Iterator[None]:
    """Restores torch's thread count after a test that changes it."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
