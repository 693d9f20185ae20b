"""Attention that is measured beside the parent, when its layer is made; each kind once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module

import pytest
import torch

from hk_backend.bench.launch.measure import LayerShape
from hk_backend.routing.routes import RouteCounters, Tally
from tests.integration.adapter import PLUGIN
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.engine import AttentionEngine
from tests.integration.shared.attention.rows import FRESH, Row, prefill_tokens
from tests.integration.shared.evidence import Bench, assert_same_attention, start_again

KIND = "attention float32, 4/2 heads of 64, causal"

Environment = Callable[..., None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_both_sides_compute_a_prompt(
    attention: AttentionEngine,
    counters: RouteCounters,
    bench: Bench,
    environment: Environment,
    dtype: torch.dtype,
) -> None:
    """Which is nobody's: not counted, and not checked."""
    environment(HK_CHECK="1")
    layer = attention.measured(dtype)
    assert bench.rows == [(32, 128)]
    assert_same_attention(bench, partial(attention.prompt, layer))
    with pytest.raises(AssertionError):
        assert_same_attention(bench, partial(attention.prompt, layer), sliding_window=16)
    assert (counters.served, counters.checked_calls) == (Tally(0, 0), 0)
    assert not counters.fallbacks
    attention.check(layer, [FRESH, Row(17)])
    assert counters.checked_calls == 1


def test_the_faster_one_computes_attention(
    attention: AttentionEngine, counters: RouteCounters, bench: Bench
) -> None:
    attention.check(attention.measured(), attention.MIXED)
    tokens = prefill_tokens(attention.MIXED)
    assert counters.served == Tally(1, tokens)
    bench.let_the_engine_win()
    attention.check(attention.measured(torch.bfloat16), attention.MIXED)
    [(why, tally)] = counters.fallbacks.items()
    assert why.startswith("faster without HK: attention bfloat16, 4/2 heads of 64, causal")
    assert why.endswith(": 32 rows: HK 2 us, the engine 1 us")
    assert tally == Tally(1, tokens)


def test_the_longest_prompt_of_a_step_decides(
    attention: AttentionEngine, counters: RouteCounters, bench: Bench, environment: Environment
) -> None:
    """A layer whose parent is faster for some lengths is HK's all the same, for HK_STRICT too."""
    environment(HK_STRICT="1")
    bench.ours = lambda tokens: 4.0 if tokens < 128 else 1.0
    layer = attention.measured()
    attention.check(layer, [attention.EXTEND, Row(127)])
    [why] = counters.fallbacks
    assert why.startswith(f"faster without HK: {KIND}")
    assert why.endswith(": 32 rows: HK 4 us, the engine 2 us")
    fell_back(counters, why, attention.EXTEND.query + 127)
    attention.check(layer, [attention.EXTEND, Row(128)])
    assert counters.served == Tally(1, attention.EXTEND.query + 128)
    attention.check(layer, [FRESH])
    assert counters.served.calls == 1


def test_a_kind_is_measured_once(
    attention: AttentionEngine,
    counters: RouteCounters,
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One answer serves this process, and the next start."""
    for _ in range(2):
        attention.check(attention.measured(), [FRESH])
    start_again(monkeypatch)
    attention.measured()
    assert len(bench.rows) == 1
    attention.measured(torch.bfloat16)
    assert len(bench.rows) == 2


def test_a_probe_is_not_measured(
    attention: AttentionEngine, counters: RouteCounters, bench: Bench
) -> None:
    """Its parent computes nothing, which would be faster."""
    probe = import_module(f"{PLUGIN}.attention.probe")
    [forward] = probe.layers(((16, 0),), LayerShape(), 1)
    forward()
    assert bench.rows == []
    assert counters.served == Tally(1, 16)
