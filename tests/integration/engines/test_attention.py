"""Who computes each row of attention, HK or the engine, for either engine.

The engine computes where HK is wrong, breaks or is slower, and it computes rows of no prompt. Its
own backend does that work. Results are compared with the reference, whose keys were never in a
cache. A row taken for another kind reads other keys, and its numbers differ.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hk_backend
from hk_backend.devices.cpu.device import cpu_device
from hk_backend.engine.rows import SPECULATIVE
from hk_backend.lab.bench.launch.measure import LayerShape
from hk_backend.ops import attention_prefill
from hk_backend.routing.routes import RouteCounters, Tally, routes
from hk_backend.terms.attention_step import AttentionStep
from tests.integration.adapter import PLUGIN, Environment
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.engine import AttentionEngine, Whose
from tests.integration.shared.attention.rows import FRESH, Row, orders, prefill_tokens
from tests.integration.shared.attention.split import UNREADABLE, Known
from tests.integration.shared.evidence import Bench, assert_same_attention, start_again

ATTENTION: AttentionEngine = import_module(f"tests.integration.{PLUGIN}.attention.engine")
"""The tests' access to the engine that is installed in this environment."""

pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def counters() -> Iterator[RouteCounters]:
    """Install the engine's attention route, and return its counters."""
    with ATTENTION.routed() as found:
        yield found


# -- HK_CHECK, a route that is off, HK that breaks

packed_and_paged = pytest.mark.parametrize("paged", [False, True], ids=["packed", "paged"])


@packed_and_paged
def test_a_wrong_result_is_the_engines(
    counters: RouteCounters,
    environment: Environment,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    paged: bool,
) -> None:
    """An error of 2% is above the tolerance and switches the route off."""
    environment(HK_CHECK="1")
    monkeypatch.setattr("hk_backend.engine.attention.attention_prefill", scaled)
    layer, rows = ATTENTION.layer(), ATTENTION.MIXED if paged else [FRESH]
    for seed in range(3):
        ATTENTION.check(layer, rows, seed)
    why = routes.verdict("attention").why
    assert why.startswith("HK_CHECK: error 2.00e-02 exceeds the tolerance")
    assert "query lengths" in why
    fell_back(counters, why, prefill_tokens(rows), calls=3)
    assert counters.checked_calls == 1, "a route that is off is not checked"
    assert counters.max_check_error == pytest.approx(0.02, rel=1e-3)
    (error,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert why in error.getMessage()


def scaled(
    query: torch.Tensor, *, out: torch.Tensor, query_start_loc: torch.Tensor, **arguments: Any
) -> None:
    """Run the operator, and make the tokens that it computes wrong by 2%."""
    attention_prefill(query, out=out, query_start_loc=query_start_loc, **arguments)
    out[query_start_loc[0] : query_start_loc[-1]] *= 1.02


def test_an_error_in_hk_and_a_route_that_was_switched_off(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine computes the call that breaks and all after it, and the log has one error."""

    def broken(*args: Any, out: Any, query_start_loc: Any, **kwargs: Any) -> None:
        out[query_start_loc[0] : query_start_loc[-1]] = 7.0
        raise RuntimeError("the extension is broken")

    layer, tokens = ATTENTION.layer(), prefill_tokens(ATTENTION.MIXED)
    monkeypatch.setattr("hk_backend.engine.attention.attention_prefill", broken)
    for seed in range(2):
        ATTENTION.check(layer, ATTENTION.MIXED, seed)
    why = "HK failed: RuntimeError: the extension is broken"
    fell_back(counters, why, tokens, calls=2)
    assert routes.verdict("attention").why == why
    (error,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert why in error.getMessage()
    routes.reset()
    routes.disable("attention", "switched off by hand")
    ATTENTION.check(layer, ATTENTION.MIXED)
    counters = routes.counters("attention")
    assert dict(counters.fallbacks) == {"switched off by hand": Tally(1, tokens)}


def test_a_step_that_cannot_be_planned(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine computes the step, no later step is planned, and the log has one error."""
    planned = []

    def broken(*args: Any) -> None:
        planned.append(args)
        raise RuntimeError("no room for a plan")

    layer = ATTENTION.layer()
    monkeypatch.setattr(AttentionStep, "of", broken)
    for seed in range(3):
        ATTENTION.check(layer, ATTENTION.MIXED, seed)
    why = "HK failed: RuntimeError: no room for a plan"
    assert routes.verdict("attention").why == why
    assert set(counters.fallbacks) == {why}
    assert counters.fallbacks[why].calls == 3
    assert len(planned) == 1
    (error,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert why in error.getMessage()


def test_an_extension_that_cannot_be_loaded(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine computes, and the loader gives the reason. Nothing failed, as nothing ran."""
    monkeypatch.delattr(hk_backend, "_cpu", raising=False)
    monkeypatch.setitem(sys.modules, "hk_backend._cpu", None)
    monkeypatch.setattr("hk_backend.devices.cpu_device", cpu_device.__wrapped__)
    ATTENTION.check(ATTENTION.layer(), ATTENTION.MIXED)
    (why,) = counters.fallbacks
    assert why.startswith("the extension hk_backend._cpu cannot be loaded (")
    fell_back(counters, why, prefill_tokens(ATTENTION.MIXED))
    assert not routes.is_disabled("attention")


# -- contests: each kind of layer is measured once beside its parent, when it is made


KIND = "attention float32, 4/2 heads of 64, causal"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_both_sides_compute_a_prompt(
    counters: RouteCounters, bench: Bench, environment: Environment, dtype: torch.dtype
) -> None:
    """The prompt that both compute belongs to no user: it is neither counted nor checked."""
    environment(HK_CHECK="1")
    layer = ATTENTION.measured(dtype)
    assert bench.rows == [(32, 128)]
    assert_same_attention(bench, partial(ATTENTION.prompt, layer))
    with pytest.raises(AssertionError):
        assert_same_attention(bench, partial(ATTENTION.prompt, layer), sliding_window=16)
    assert (counters.served, counters.checked_calls) == (Tally(0, 0), 0)
    assert not counters.fallbacks
    ATTENTION.check(layer, [FRESH, Row(17)])
    assert counters.checked_calls == 1


def test_the_faster_one_computes_attention(counters: RouteCounters, bench: Bench) -> None:
    ATTENTION.check(ATTENTION.measured(), ATTENTION.MIXED)
    tokens = prefill_tokens(ATTENTION.MIXED)
    assert counters.served == Tally(1, tokens)
    bench.let_the_engine_win()
    ATTENTION.check(ATTENTION.measured(torch.bfloat16), ATTENTION.MIXED)
    [(why, tally)] = counters.fallbacks.items()
    assert why.startswith("faster without HK: attention bfloat16, 4/2 heads of 64, causal")
    assert why.endswith(": 32 rows: HK 2 us, the engine 1 us")
    assert tally == Tally(1, tokens)


def test_the_longest_prompt_of_a_step_decides(
    counters: RouteCounters, bench: Bench, environment: Environment
) -> None:
    """HK keeps a layer if its parent is faster for some lengths only, under HK_STRICT as well."""
    environment(HK_STRICT="1")
    bench.ours = lambda tokens: 4.0 if tokens < 128 else 1.0
    layer = ATTENTION.measured()
    ATTENTION.check(layer, [ATTENTION.EXTEND, Row(127)])
    [why] = counters.fallbacks
    assert why.startswith(f"faster without HK: {KIND}")
    assert why.endswith(": 32 rows: HK 4 us, the engine 2 us")
    fell_back(counters, why, ATTENTION.EXTEND.query + 127)
    ATTENTION.check(layer, [ATTENTION.EXTEND, Row(128)])
    assert counters.served == Tally(1, ATTENTION.EXTEND.query + 128)
    ATTENTION.check(layer, [FRESH])
    assert counters.served.calls == 1


def test_a_kind_is_measured_once(
    counters: RouteCounters, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One measurement serves this process, and the next one."""
    for _ in range(2):
        ATTENTION.check(ATTENTION.measured(), [FRESH])
    start_again(monkeypatch)
    ATTENTION.measured()
    assert len(bench.rows) == 1
    ATTENTION.measured(torch.bfloat16)
    assert len(bench.rows) == 2


def test_a_probe_is_not_measured(counters: RouteCounters, bench: Bench) -> None:
    """HK's probe of a layer is not measured: its parent computes nothing, and would seem faster."""
    probe = import_module(f"{PLUGIN}.attention.probe")
    [forward] = probe.layers(((16, 0),), LayerShape(), 1)
    forward()
    assert bench.rows == []
    assert counters.served == Tally(1, 16)


# -- rows in every order in one step: HK computes the prompts' rows


FIRST = next(iter(ATTENTION.KNOWN))
PAGE, LONGEST = ATTENTION.PAGE, 96


@pytest.fixture
def known(request: pytest.FixtureRequest) -> Known:
    """One case of what HK can know of the engine's batches."""
    return ATTENTION.KNOWN[getattr(request, "param", FIRST)]


@pytest.fixture
def whose(known: Known, counters: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> Whose:
    return ATTENTION.whose(known, monkeypatch)


def check(known: Known, whose: Whose, rows: Sequence[Row], seed: int = 0) -> None:
    """Hold a batch's result, who computed which of its rows, and the counters."""
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
