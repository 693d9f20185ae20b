"""Routing counters as a server's `/metrics` shows them."""

from __future__ import annotations

import pytest

from bench_serving import counters
from hk_backend.engine.evidence import SLOWER as REASON
from hk_backend.routing.routes import Tally

METRICS = """\
# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0"} 12.0
# HELP hk_backend_calls_total Layer calls of an HK route by outcome
# TYPE hk_backend_calls_total counter
hk_backend_calls_total{outcome="served",reason="",route="attention"} 30.0
hk_backend_calls_total{outcome="fallback",reason="sliding_window 0, odd",route="attention"} 2.0
hk_backend_calls_total{outcome="dummy",reason="profiling",route="attention"} 30.0
hk_backend_calls_total{outcome="captured",reason="",route="attention"} 7.0
# HELP hk_backend_tokens_total Prefill tokens of an HK route by outcome, per layer call
# TYPE hk_backend_tokens_total counter
hk_backend_tokens_total{outcome="served",reason="",route="attention"} 900.0
hk_backend_tokens_total{outcome="fallback",reason="sliding_window 0, odd",route="attention"} 100.0
hk_backend_tokens_total{outcome="dummy",reason="profiling",route="attention"} 4096.0
"""


def test_outcomes_are_kept_apart_and_servers_add_up() -> None:
    one = counters.parse(METRICS)
    for times, attention in ((1, one["attention"]), (2, counters.add([one, one])["attention"])):
        assert (attention.served.calls, attention.served.tokens) == (30 * times, 900 * times)
        assert set(attention.fallbacks) == {"sliding_window 0, odd"}
        fallback = attention.fallbacks["sliding_window 0, odd"]
        assert (fallback.calls, fallback.tokens) == (2 * times, 100 * times)
        assert (attention.dummy.calls, attention.dummy.tokens) == (30 * times, 4096 * times)
        assert attention.captured.calls == 7 * times
        assert attention.routed_share == pytest.approx(0.9)


def test_the_share_of_an_interval_leaves_out_what_was_before() -> None:
    """Nothing served is a share of zero, not one; a stock server has no counters."""
    later = METRICS.replace(" 900.0", " 1000.0").replace(" 100.0", " 400.0")
    share = counters.share_between(counters.parse(METRICS), counters.parse(later))
    assert share == pytest.approx(100 / 400)
    assert counters.parse("# TYPE x counter\nx_total 3\n") == {}
    assert counters.RouteTotals().routed_share == counters.share_between({}, {}) == 0.0


SLOWER = f"{REASON}: linear bf16 64x64: 1 row: HK 2 us, the engine 1 us"
"""A reason of what the engine computes faster."""


@pytest.mark.parametrize(
    ("served", "fallbacks", "share"),
    [
        (0, {}, 0.0),
        (0, {SLOWER: 50}, 1.0),
        (30, {SLOWER: 50}, 1.0),
        (30, {"odd": 10}, 0.75),
        (30, {"odd": 10, SLOWER: 50}, 0.75),
        (0, {"odd": 10, SLOWER: 50}, 0.0),
        (0, {"odd": 0}, 0.0),
        (0, {"odd": 0, SLOWER: 50}, 0.0),
    ],
)
def test_the_share_of_what_was_hks_to_compute(
    served: int, fallbacks: dict[str, int], share: float
) -> None:
    """A machine on which the engine is faster fails no demo; another fallback does."""
    tallies = {why: Tally(1, tokens) for why, tokens in fallbacks.items()}
    totals = counters.RouteTotals(Tally(int(served > 0), served), tallies)
    assert totals.share_of_hks == share


LEFT = (
    METRICS
    + f"""\
# HELP hk_backend_layers_total Layers of loaded models
# TYPE hk_backend_layers_total counter
hk_backend_layers_total{{outcome="served",reason="",route="attention"}} 30.0
hk_backend_layers_total{{outcome="fallback",reason="{SLOWER}",route="linear"}} 121.0
"""
)


def test_layers_that_the_engine_computes_faster_are_none_of_hks() -> None:
    """Such layers are decided once and count no calls; a layer left for another reason does."""
    linear = counters.parse(LEFT)["linear"]
    assert linear.layers_left == {SLOWER: 121}
    assert linear.share_of_hks == 1.0
    assert counters.parse(LEFT)["attention"].layers_left == {}
    twice = counters.add([counters.parse(LEFT), counters.parse(LEFT)])["linear"]
    assert twice.layers_left == {SLOWER: 242}
    odd = counters.RouteTotals(layers_left={SLOWER: 1, "odd": 1})
    assert odd.share_of_hks == 0.0
