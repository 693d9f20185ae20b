"""Who computes the decode rows of a step, HK or the engine, for either engine.

Results are compared with the reference, whose keys were never in a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

import pytest
import torch

from hk_backend.devices.cpu.device import CpuDevice
from hk_backend.engine.decode_rows import REQUESTS
from hk_backend.engine.evidence import Contest, deciding
from hk_backend.engine.rows import SPECULATIVE
from hk_backend.ops import attention_decode
from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.integration.adapter import PLUGIN, Environment
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.engine import AttentionEngine
from tests.integration.shared.attention.rows import (
    DECODE,
    DRAFTS,
    FRESH,
    VERIFY,
    Row,
    prefill_tokens,
)
from tests.integration.shared.evidence import Bench

ATTENTION: AttentionEngine = import_module(f"tests.integration.{PLUGIN}.attention.engine")
"""The tests' access to the engine that is installed in this environment."""
OPERATOR = "hk_backend.engine.attention.attention_decode"
ROWS = [DECODE, Row(1, 1), Row(1, 95), DECODE]
VERIFYING = [VERIFY, Row(VERIFY.query, 1, verifies=True), Row(VERIFY.query, 77, verifies=True)]
VERIFIED = prefill_tokens(VERIFYING)

pytestmark = pytest.mark.usefixtures("small")
Routed = Callable[..., RouteCounters]


@pytest.fixture
def routed(environment: Environment) -> Iterator[Routed]:
    """Install the attention routes, with HK wherever it can; returns decode's counters."""
    installed: list[Any] = []

    def install(backend: str = "attention,decode", **variables: str) -> RouteCounters:
        environment(HK_BACKEND=backend, **{"HK_EVIDENCE": "ignore", **variables})
        context = ATTENTION.routed(backend)
        context.__enter__()
        installed.append(context)
        return routes.counters("decode")

    yield install
    for context in installed:
        context.__exit__(None, None, None)


def decode_tokens(rows: Sequence[Row]) -> int:
    return sum(row.query for row in rows if row.cached and row.query == 1)


@pytest.mark.parametrize("rows", [[DECODE], ROWS, [Row(1, 0), DECODE], ATTENTION.MIXED], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_hk_computes_every_row(
    routed: Routed, monkeypatch: pytest.MonkeyPatch, rows: list[Row], dtype: torch.dtype
) -> None:
    counters = routed()
    layer = ATTENTION.layer(dtype)
    ATTENTION.without_parent(monkeypatch)
    ATTENTION.check(layer, rows)
    assert counters.served == Tally(1, sum(row.query for row in rows if row.query == 1))
    assert not counters.fallbacks
    prefill = routes.counters("attention")
    assert prefill.served.tokens == prefill_tokens(rows)
    assert not prefill.fallbacks
    assert counters.layers == 1


def test_a_route_of_its_own(routed: Routed) -> None:
    """HK_BACKEND=attention leaves decode to the engine, and counts nothing of it."""
    counters = routed("attention")
    layer = ATTENTION.layer()
    for rows in (ROWS, ATTENTION.MIXED):
        ATTENTION.check(layer, rows)
    assert (counters.served, counters.layers) == (Tally(0, 0), 0)
    assert not counters.fallbacks
    assert not counters.layers_left


def test_a_wrong_result_is_the_engines(routed: Routed, monkeypatch: pytest.MonkeyPatch) -> None:
    """HK_CHECK switches decode off, and prefill stays on."""
    counters = routed(HK_CHECK="1")
    monkeypatch.setattr(OPERATOR, scaled)
    layer = ATTENTION.layer()
    for seed in range(2):
        ATTENTION.check(layer, ROWS, seed)
    why = routes.verdict("decode").why
    assert why.startswith("HK_CHECK: error 2.00e-02 exceeds the tolerance")
    fell_back(counters, why, decode_tokens(ROWS), calls=2)
    assert counters.checked_calls == 1
    ATTENTION.check(layer, ATTENTION.MIXED)
    prefill = routes.counters("attention")
    assert prefill.served == Tally(1, prefill_tokens(ATTENTION.MIXED))


def scaled(query: torch.Tensor, *, out: torch.Tensor, **arguments: Any) -> None:
    """Run the operator, and make the tokens that it computes wrong by 2%."""
    starts = arguments["query_start_loc"]
    attention_decode(query, out=out, **arguments)
    out[starts[0] : starts[-1]] *= 1.02


@pytest.mark.parametrize("rows", [ROWS, ATTENTION.MIXED], ids=["decode", "mixed"])
def test_an_error_in_hk(routed: Routed, monkeypatch: pytest.MonkeyPatch, rows: list[Row]) -> None:
    """The engine computes the whole batch that breaks, and decode rows from then on."""

    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("the extension is broken")

    counters = routed()
    monkeypatch.setattr(OPERATOR, broken)
    layer = ATTENTION.layer()
    ATTENTION.check(layer, rows)
    why = "HK failed: RuntimeError: the extension is broken"
    assert routes.verdict("decode").why == why
    fell_back(counters, why, decode_tokens(rows))
    assert not routes.is_disabled("attention")
    ATTENTION.check(layer, ATTENTION.MIXED, seed=1)
    prefill = routes.counters("attention")
    assert prefill.served == Tally(1, prefill_tokens(ATTENTION.MIXED))


# -- contests


def test_the_number_of_requests_decides(routed: Routed, bench: Bench) -> None:
    """HK keeps decode if its parent is faster for some numbers of requests only."""
    counters = routed(HK_EVIDENCE="measure")
    bench.ours = lambda rows: 4.0 if rows == REQUESTS[0] else 1.0
    layer = ATTENTION.measured()
    ATTENTION.check(layer, [DECODE])
    [why] = counters.fallbacks
    assert why.startswith("faster without HK: decode float32, 4/2 heads of 64, causal")
    assert why.endswith(": 1 row: HK 4 us, the engine 2 us")
    fell_back(counters, why, 1)
    ATTENTION.check(layer, [DECODE] * REQUESTS[1])
    assert counters.served == Tally(1, REQUESTS[1])


def test_both_sides_compute_the_same(routed: Routed, bench: Bench) -> None:
    """Both sides of a contest decode the same requests, which belong to no user."""
    counters = routed(HK_EVIDENCE="measure")
    ATTENTION.measured()
    assert bench.rows[-1][0] == REQUESTS[0], "the last contest was of decode"
    for ours, theirs in bench.outputs.values():
        assert_close(ours.view_as(theirs), theirs)
        with pytest.raises(AssertionError):
            assert_close(ours.view_as(theirs).roll(1, -1), theirs)
    assert (counters.served, counters.layers) == (Tally(0, 0), 1)
    assert not counters.fallbacks


def test_hk_s_time_is_planned_for_each_batch(
    routed: Routed, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan of a contest's batch stands for HK's time on an emulated GPU."""
    asked = []

    def microseconds(device: Any, request: Any, rows: int) -> float:
        asked.append((request.operator, getattr(request, "keys", 0), rows))
        return 1.5

    def before(contest: Contest) -> None:
        assert contest.planned is not None
        assert contest.planned(contest.rows[-1]) == 1.5

    monkeypatch.setattr(CpuDevice, "microseconds", microseconds, raising=False)
    bench.before = before
    routed(HK_EVIDENCE="measure")
    ATTENTION.measured()
    lengths = [
        int(kind.layer.split()[-2])
        for kind, _ in deciding.process.known
        if kind.operator == "decode"
    ]
    assert lengths
    prompt, *batches = asked
    assert prompt == ("attention_prefill", 0, bench.rows[0][-1])
    assert batches == [
        ("attention_decode", keys, rows[-1])
        for keys, rows in zip(lengths, bench.rows[1:], strict=True)
    ]


def assert_close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_parent_that_is_faster_everywhere(routed: Routed, bench: Bench) -> None:
    """The layers are counted once with the reason, and decode calls cost nothing more."""
    counters = routed(HK_EVIDENCE="measure")

    def before(contest: Contest) -> None:
        bench.ours = lambda rows: 4.0 if contest.rows[0] == REQUESTS[0] else 1.0

    bench.before = before
    layer = ATTENTION.measured()
    ATTENTION.check(layer, ROWS)
    [(why, layers)] = counters.layers_left.items()
    assert why.startswith("faster without HK: decode float32")
    assert layers == 1
    assert (counters.served, counters.layers) == (Tally(0, 0), 0)
    ATTENTION.check(layer, [FRESH])
    assert routes.counters("attention").served == Tally(1, 5)


# -- rows that verify drafts


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_hk_verifies_drafts(
    routed: Routed, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    counters = routed()
    layer = ATTENTION.layer(dtype, DRAFTS)
    ATTENTION.without_parent(monkeypatch)
    ATTENTION.check(layer, VERIFYING)
    assert counters.served == Tally(1, VERIFIED)
    assert not counters.fallbacks
    assert not routes.counters("attention").fallbacks


def test_drafts_count_as_prefills_where_decode_is_no_route(routed: Routed) -> None:
    counters = routed("attention")
    ATTENTION.check(ATTENTION.layer(drafts=DRAFTS), VERIFYING)
    assert not counters.fallbacks
    fell_back(routes.counters("attention"), SPECULATIVE, VERIFIED)


def test_the_number_of_requests_decides_about_drafts(routed: Routed, bench: Bench) -> None:
    """A step that only verifies drafts is the route's of decode, and no prefill is left."""
    counters = routed(HK_EVIDENCE="measure")
    bench.ours = lambda rows: 4.0 if rows == REQUESTS[0] else 1.0
    layer = ATTENTION.measured(drafts=DRAFTS)
    ATTENTION.check(layer, VERIFYING[:1])
    [why] = counters.fallbacks
    assert why.startswith("faster without HK: decode float32")
    fell_back(counters, why, VERIFY.query)
    ATTENTION.check(layer, [VERIFY] * REQUESTS[1])
    assert counters.served == Tally(1, REQUESTS[1] * VERIFY.query)
    prefill = routes.counters("attention")
    assert (prefill.served, dict(prefill.fallbacks)) == (Tally(0, 0), {})


def test_drafts_of_a_parent_that_is_faster_everywhere(routed: Routed, bench: Bench) -> None:
    """Neither route counts the rows, as the layers are counted once with the reason."""
    counters = routed(HK_EVIDENCE="measure")

    def before(contest: Contest) -> None:
        bench.ours = lambda rows: 4.0 if contest.rows[0] == REQUESTS[0] else 1.0

    bench.before = before
    ATTENTION.check(ATTENTION.measured(drafts=DRAFTS), VERIFYING)
    assert list(counters.layers_left.values()) == [1]
    assert not counters.fallbacks
    assert not routes.counters("attention").fallbacks


def test_more_drafts_than_the_operator_takes(routed: Routed) -> None:
    counters = routed()
    row = Row(18, 30, verifies=True)
    ATTENTION.check(ATTENTION.layer(drafts=row.query - 1), [row])
    fell_back(counters, "decode rows of 18 tokens, expected at most 16", row.query)
    assert not routes.counters("attention").fallbacks
