"""Masks, soft cap, sinks, ALiBi, scale: each alone, with keys whole and split over threads."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from hk_backend import reference
from hk_backend.ops import attention_prefill
from tests.ops.cases import Case, arguments, make
from tests.ops.oracle import check
from tests.ops.strategies import DTYPES

RAGGED = ((70, 70), (1, 90), (0, 4), (33, 300), (5, 9))
WINDOWS = (1, 2, 15, 16, 17, 31, 32, 33, 48, 64, 129, 255, 256, 257, 299, 300, 10**6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", WINDOWS)
def test_sliding_window(
    window: int, causal: bool, dtype: torch.dtype, splits: bool, isa: str
) -> None:
    case = Case(lengths=(*RAGGED, (1, 300)), sliding_window=window, causal=causal, dtype=dtype)
    check(make(case))


HEADS = [{"num_heads": heads, "num_kv_heads": kv} for heads, kv in ((1, 1), (8, 2), (9, 3))]
FEATURES: list[dict[str, Any]] = [
    *(
        {"logits_soft_cap": cap, "magnitude": magnitude}
        for magnitude in (0.01, 1.5, 10.0)
        for cap in (0.0, 0.1, 5.0, 30.0, 50.0)
    ),
    *({"alibi": True, "causal": causal, **heads} for causal in (True, False) for heads in HEADS),
    *({"sinks": True, **heads} for heads in HEADS),
    *({"scale": scale} for scale in (1.0, 0.01, 0.0, -0.2)),
]


@pytest.mark.parametrize("feature", FEATURES, ids=str)
def test_each_feature(feature: dict[str, Any], isa: str) -> None:
    check(make(Case(lengths=RAGGED, **feature)))


@pytest.mark.parametrize("sink", [-math.inf, -1e4, -100.0, -3.0, 0.0, 100.0, 1e4])
def test_extreme_sinks(sink: float, splits: bool, isa: str) -> None:
    """A sink counts once, however many parts the keys come in."""
    call = make(Case(lengths=((2, 200), *RAGGED)))
    check(call | {"sinks": torch.tensor([sink, 0.5])})


def test_a_sink_of_infinity_takes_all_weight(splits: bool, isa: str) -> None:
    """An infinite sink takes all the weight of its own head's rows, also in the reference."""
    call = make(Case(lengths=RAGGED))
    one, other = ({**call, "sinks": torch.tensor([sink, 0.5])} for sink in (math.inf, 2.0))
    for results in (
        [attention_prefill(**each, return_lse=True) for each in (one, other)],
        [reference.attention_prefill(arguments(each)) for each in (one, other)],
    ):
        (out, lse), (other_out, other_lse) = results
        assert (out[:, 0] == 0).all()
        assert (lse[0] == math.inf).all()
        assert torch.equal(out[:, 1], other_out[:, 1])
        assert torch.equal(lse[1], other_lse[1])


@pytest.mark.parametrize("sinks", [False, True])
def test_rows_that_see_nothing(sinks: bool, splits: bool, isa: str) -> None:
    """Queries that stand before the first key give exactly zeros."""
    case = Case(lengths=((48, 40), (3, 0), (300, 260)), num_heads=4, num_kv_heads=2, after=1)
    call = make(case.but(sinks=sinks))
    check(call)
    out, lse = attention_prefill(**call, return_lse=True)
    for first, last in ((0, 8), (48, 51), (51, 91)):
        assert (out[first:last] == 0).all()
        assert sinks or (lse[:, first:last] == -math.inf).all()
