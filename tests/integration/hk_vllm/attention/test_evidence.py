"""Attention that is measured beside the parent, when vLLM constructs a layer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from hk_backend.engine.strict import StrictError
from hk_backend.routing.routes import RouteCounters
from tests.integration.hk_vllm.attention.batch import (
    HEAD_SIZE,
    LAYER_NAME,
    MIXED,
    NUM_HEADS,
    PREFILL,
    Batch,
    Layer,
)
from tests.integration.hk_vllm.attention.engine import prompt, short_steps
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.evidence import Bench, assert_same_attention

KIND = f"attention float32, {NUM_HEADS}/2 heads of {HEAD_SIZE}, causal"
SLOPES = [0.5, 0.25, 0.1, 0.05]


def layer_of(backend: Any, dtype: torch.dtype = torch.float32, **arguments: Any) -> Layer:
    return Layer(backend, dtype, short_steps(dtype), arguments)


@pytest.mark.parametrize(
    ("arguments", "mask"),
    [
        ({"per_layer_sliding_window": 16}, {"sliding_window": 16}),
        ({"logits_soft_cap": 2.0}, {"logits_soft_cap": 2.0}),
        ({"alibi_slopes": SLOPES}, {"alibi_slopes": torch.tensor(SLOPES)}),
        ({"sinks": torch.full((NUM_HEADS,), torch.nan)}, {"sinks": torch.zeros(NUM_HEADS)}),
    ],
    ids=["window", "cap", "alibi", "sinks"],
)
def test_both_sides_get_the_layers_arguments(
    bench: Bench, hk_cpu: Any, arguments: dict[str, Any], mask: dict[str, Any]
) -> None:
    """Sinks have no values yet: both compute with zeros. Nothing stays of the parent's own layer,
    and other arguments are another kind."""
    layer = layer_of(hk_cpu, **arguments)
    assert_same_attention(bench, partial(prompt, layer), **mask)
    assert list(layer.config.compilation_config.static_forward_context) == [LAYER_NAME]
    assert layer.config.cache_config.cache_dtype == "auto"
    layer_of(hk_cpu)
    assert len(bench.rows) == 2


def test_a_layer_that_the_parent_computes_faster(
    bench: Bench,
    hk_cpu: Any,
    stock_cpu: Any,
    counters: RouteCounters,
    environment: Callable[..., None],
) -> None:
    """It is stock vLLM's, with its fusions and its compiled graphs; strict refuses it."""
    bench.let_the_engine_win()
    layer, stock = layer_of(hk_cpu), layer_of(stock_cpu)
    assert layer.config.compute_hash() == stock.config.compute_hash()
    assert layer.impl.supports_quant_query_input == stock.impl.supports_quant_query_input
    Batch(layer, MIXED).run_and_check()
    fell_back(counters, f"faster without HK: {KIND}: 32 rows: HK 2 us, the engine 1 us", PREFILL)
    environment(HK_STRICT="1")
    with pytest.raises(StrictError, match="attention would fall back: faster without HK"):
        layer_of(hk_cpu)


def test_kinds_of_a_group_decide_together(bench: Bench, hk_cpu: Any) -> None:
    """A step is HK's where no layer of the group is slower."""
    full = layer_of(hk_cpu)
    bench.ours = lambda tokens: 3.0 if tokens < 128 else 1.0
    windowed = layer_of(hk_cpu, per_layer_sliding_window=16)
    full.config.compilation_config.static_forward_context["other"] = windowed.module
    assert Batch(full, MIXED).build().hk.refusal == ""
    full.builder = full.new_builder(hk_cpu.get_builder_cls(), [LAYER_NAME, "other"])
    assert "window of 16" in Batch(full, MIXED).build().hk.refusal


def test_each_set_of_kinds_has_its_own_graphs(bench: Bench, hk_cpu: Any) -> None:
    """vLLM may fuse what is left to the parent."""

    def key(window_wins: bool) -> str:
        config = short_steps()
        bench.ours = lambda tokens: 1.0
        Layer(hk_cpu, config=config)
        if not window_wins:
            bench.let_the_engine_win()
        window = 16 if window_wins else 17
        config.compilation_config.static_forward_context.clear()
        Layer(hk_cpu, config=config, arguments={"per_layer_sliding_window": window})
        found: str = config.compute_hash()
        return found

    assert key(True) != key(False)
