"""What HK gets of vLLM's defaults on an MI355X: the matrix, cell by cell; docs/routing.md shows it.

pytest tests/integration/hk_vllm/rocm/defaults --into docs/routing.md
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from hk_backend.routing.routes import RouteCounters
from tests.integration.hk_vllm.rocm.defaults.choices import choices, parent_of
from tests.integration.hk_vllm.rocm.defaults.run import hold
from tests.integration.hk_vllm.rocm.defaults.settings import AITER_OFF, DEFAULTS
from tests.integration.hk_vllm.rocm.parents import PARENTS
from tests.integration.shared.defaults import table
from tests.integration.shared.defaults.cells import Cell, cells, covered
from tests.integration.shared.defaults.table import Found, Note

ENGINE = "vLLM"
MATRIX = cells([str(setting) for setting in DEFAULTS])


@pytest.fixture(scope="module")
def note(request: pytest.FixtureRequest) -> Iterator[Note]:
    yield from table.noting(ENGINE, MATRIX, request.config)


@pytest.mark.parametrize("cell", covered("vLLM's defaults", MATRIX))
def test_cell(cell: Cell, emulated: None, counters: RouteCounters, note: Note) -> None:
    """HK computes the prompts' tokens, exactly to rounding, or says why not."""
    parent = parent_of(cell)
    reason = hold(cell, parent, counters)
    note(cell, Found(parent.member, reason))


def test_engines_serve_what_vllm_chooses() -> None:
    """The parents of the end-to-end tests: backend, layout and pages."""
    served = {(of.hk_path, of.layout, of.block_size) for of in PARENTS.values() if not of.shuffled}
    for setting in DEFAULTS[:3]:
        for layer in choices()[str(setting)].values():
            for of in layer.values():
                assert (of["path"], of["layout"], of["block_size"]) in served


def test_llama_and_qwen_are_served() -> None:
    """Whatever the traffic."""
    found = {cell.reason() for cell in MATRIX if cell.attention.name.startswith(("Llama", "Qwen"))}
    assert found == {""}


def test_switching_aiter_off_changes_nothing() -> None:
    for off in AITER_OFF:
        unset = replace(off, variable=None)
        assert choices()[str(off)] == choices()[str(unset)]


def test_prefix_caching_is_a_default() -> None:
    """So every prompt behind a chat's template is an extend."""
    found = [
        of for chosen in choices().values() for each in chosen.values() for of in each.values()
    ]
    assert all(of["prefix_caching"] for of in found)
