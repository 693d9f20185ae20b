"""What vLLM's arguments mean to HK, and what of a plan must be right."""

from __future__ import annotations

from typing import Any

import pytest
import torch

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
