"""The matrix of vLLM's defaults on an MI355X, cell by cell, as docs/routing.md shows it.

pytest tests/integration/hk_vllm/rocm/defaults --into docs/routing.md
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import Mock

import pytest

from hk_backend.devices.hip.emulated import emulated_device
from hk_backend.routing.routes import RouteCounters, routes
from tests.integration.adapter import Environment
from tests.integration.hk_vllm.rocm import torch_kernels, triton_kernels
from tests.integration.hk_vllm.rocm.defaults.run import hold
from tests.integration.hk_vllm.rocm.defaults.session import AITER_OFF, DEFAULTS, Setting
from tests.integration.hk_vllm.rocm.parents import PARENTS, Parent
from tests.integration.hk_vllm.rocm.pretending import answers_of
from tests.integration.shared.defaults import table
from tests.integration.shared.defaults.cells import Cell, cells, covered
from tests.integration.shared.defaults.faults import WrongScale
from tests.integration.shared.defaults.models import LAYERS
from tests.integration.shared.defaults.table import Found, Note
from tests.integration.shared.defaults.traffic import CHECKPOINT, FP8, TRAFFIC

pytestmark = pytest.mark.triton
MATRIX = cells([str(setting) for setting in DEFAULTS])
Choices = dict[str, dict[str, dict[str, Any]]]
"""Findings of `session.choose`, by setting, layer and dtype of the cache."""


@cache
def choices() -> Choices:
    """The choices of vLLM in all settings."""
    sessions = (answers_of("defaults.session", *flags) for flags in (["--aiter"], []))
    return {setting: of for session in sessions for setting, of in session.items()}


def parent_of(cell: Cell) -> Parent:
    """The backend that serves `cell`, its layout and the size of its pages."""
    dtype = FP8 if cell.traffic.cache == CHECKPOINT else cell.traffic.cache
    found = choices()[cell.setting][cell.attention.name][dtype]
    member = found["path"].rpartition("HK_")[2]
    size = found["block_size"]
    parent = Parent(member, member, found["layout"], size, size)
    assert found["path"] == parent.hk_path, "HK is not around it"
    return parent


@pytest.fixture
def emulated(small: None, environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run HK's kernels and vLLM's Triton kernels in the emulator, and all others in torch."""
    torch_kernels.install(monkeypatch)
    environment(HK_DEVICE="emulated:gfx950")
    emulated_device("gfx950")


@pytest.fixture(scope="module")
def note(request: pytest.FixtureRequest) -> Iterator[Note]:
    yield from table.noting("vLLM", MATRIX, request.config)


@pytest.mark.parametrize("cell", covered("vLLM's defaults", MATRIX))
def test_cell(
    cell: Cell,
    emulated: None,
    counters: RouteCounters,
    note: Note,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """HK computes the prompts' tokens, exactly to rounding, or says why not."""
    parent = parent_of(cell)
    group = cell.attention.num_heads // cell.attention.num_kv_heads
    if group & (group - 1):  # two workgroups of TRITON_ATTN write some rows of such groups alike
        monkeypatch.setattr(triton_kernels.gpu(), "strict", False)
    reason = hold(cell, parent, counters)
    note(cell, Found(parent.member, reason))


def test_a_wrong_scale_is_seen(
    emulated: None, counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Llama's cell over a checkpoint's FP8 cache is green, and red with the fault.

    The faulty calls still count as served, so that only the numbers show the fault.
    """
    [traffic] = (traffic for traffic in TRAFFIC if traffic.cache == CHECKPOINT)
    cell, tell = Cell(LAYERS[0], str(Setting()), traffic), Mock()
    hold(cell, parent_of(cell), counters)
    routes.reset()
    WrongScale(tell).install(monkeypatch)
    with pytest.raises(AssertionError, match="out of bounds"):
        hold(cell, parent_of(cell), routes.counters("attention"))
    assert tell.called


def test_what_vllm_chooses() -> None:
    """vLLM's choices are the parents of the end-to-end tests, by backend, layout and pages.

    Prefix caching is a default, so every prompt behind a chat's template is an extend. Without
    AITER's variable vLLM chooses as if AITER were off.
    """
    served = {(of.hk_path, of.layout, of.block_size) for of in PARENTS.values() if not of.shuffled}
    for setting, layers in choices().items():
        for of in (of for layer in layers.values() for of in layer.values()):
            assert of["prefix_caching"]
            if setting in map(str, DEFAULTS[:3]):
                assert (of["path"], of["layout"], of["block_size"]) in served
    for off in AITER_OFF:
        assert choices()[str(off)] == choices()[str(replace(off, variable=None))]
