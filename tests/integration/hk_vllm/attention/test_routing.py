"""What vLLM's arguments mean to HK, and what of a plan must be right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hk_vllm.attention.builder import Plan

from hk_backend.routing.routes import RouteCounters
from tests.integration.hk_vllm.attention.batch import Batch, Layer
from tests.integration.shared.attention.rows import EXTEND, FRESH, Row

SLOPES, SINKS = [0.5, 0.25, 0.125, 0.0625], torch.tensor([1.0, -1.0, 3.0, 0.0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize(
    ("arguments", "mask"),
    [
        ({"per_layer_sliding_window": 8}, {"sliding_window": 8}),
        ({"logits_soft_cap": 2.0}, {"logits_soft_cap": 2.0}),
        ({"alibi_slopes": SLOPES}, {"alibi_slopes": torch.tensor(SLOPES)}),
        ({"sinks": SINKS}, {"sinks": SINKS}),
        ({"sinks": SINKS.bfloat16()}, {"sinks": SINKS}),
    ],
    ids=["window", "softcap", "alibi", "sinks", "sinks in bfloat16"],
)
def test_masks_reach_the_operator(
    hk_cpu: Any,
    counters: RouteCounters,
    dtype: torch.dtype,
    arguments: dict[str, Any],
    mask: dict[str, Any],
) -> None:
    Batch(Layer(hk_cpu, dtype, arguments=arguments), [EXTEND, FRESH, Row(20)]).run_and_check(**mask)
    assert counters.served.tokens == 31


def of_step(plan: Plan, **facts: torch.Tensor) -> dict[str, Any]:
    assert plan.step is not None
    return {"step": replace(plan.step, **facts)}


@pytest.mark.parametrize(
    "misread",
    [
        lambda plan: {"reads_cache": False},
        lambda plan: of_step(plan, seq_lens=plan.step.seq_lens - 1),
        lambda plan: of_step(plan, block_table=plan.step.block_table.flip(0)),
        lambda plan: of_step(plan, query_start_loc=plan.step.query_start_loc[[0, 0, -1]]),
    ],
    ids=["cached prefix ignored", "last key dropped", "another row's blocks", "shifted queries"],
)
def test_a_misread_row_is_seen(
    layer: Layer, counters: RouteCounters, misread: Callable[[Plan], dict[str, Any]]
) -> None:
    """The check itself: other facts about a row must fail it.

    Both rows have so many cached keys that the operator cannot tell the facts from true ones.
    """
    batch = Batch(layer, [EXTEND, Row(5, 30)])
    metadata = batch.build()
    metadata.hk = replace(metadata.hk, **misread(metadata.hk))
    batch.forward(metadata)
    assert counters.served.calls == 1, "HK refused the call instead of computing it"
    with pytest.raises(AssertionError, match="out of bounds"):
        batch.check()
