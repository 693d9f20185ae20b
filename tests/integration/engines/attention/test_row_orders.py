"""Rows in every order, in one step: the prompts' are HK's, the others the engine's.

The engine's own backend computes what is not HK's; the expectation is the reference over keys that
were never in a cache. A row taken for another kind reads other keys, and its numbers differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hk_backend.engine.rows import SPECULATIVE
from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.integration.engines.attention.conftest import ATTENTION
from tests.integration.shared.attention.engine import Whose
from tests.integration.shared.attention.rows import Row, orders, prefill_tokens
from tests.integration.shared.attention.split import UNREADABLE, Known

FIRST = next(iter(ATTENTION.KNOWN))
PAGE, LONGEST = ATTENTION.PAGE, 96


@pytest.fixture
def known(request: pytest.FixtureRequest) -> Known:
    """What is known of the engine's batches."""
    return ATTENTION.KNOWN[getattr(request, "param", FIRST)]


@pytest.fixture
def whose(known: Known, counters: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> Whose:
    return ATTENTION.whose(known, monkeypatch)


def check(known: Known, whose: Whose, rows: Sequence[Row], seed: int = 0) -> None:
    """Result, who computed which rows, and counters."""
    routes.reset()
    mine = known.hks(rows)
    assert whose(rows, seed) == mine
    found = routes.counters("attention")
    hks = prefill_tokens(row for row, its in zip(rows, mine, strict=True) if its)
    assert found.served == Tally(int(any(mine)), hks)
    assert sum(t.tokens for t in found.fallbacks.values()) == prefill_tokens(rows) - hks
    assert set(found.fallbacks) <= {SPECULATIVE, *([] if known.readable else [UNREADABLE])}
    assert not found.dummy.calls


@pytest.mark.parametrize("known", ATTENTION.KNOWN, indirect=True)
def test_every_order(known: Known, whose: Whose) -> None:
    for rows in orders(ATTENTION.KINDS, longest=6, sampled=100):
        check(known, whose, rows)


any_row = st.builds(
    lambda query, pages: Row(query, pages * PAGE),
    st.integers(ATTENTION.SHORTEST, LONGEST),
    st.integers(0, LONGEST // PAGE),
)
any_rows = st.lists(any_row, max_size=5).filter(lambda rows: any(row.query for row in rows))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(any_rows, st.integers(0, 99))
def test_any_lengths(known: Known, whose: Whose, rows: list[Row], seed: int) -> None:
    check(known, whose, rows, seed)
