"""Numbers that hurt an online softmax: rising maxima, large magnitudes, outliers, infinities."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from hk_backend import reference
from hk_backend.ops import attention_prefill
from tests.ops.cases import Call, Case, arguments, make
from tests.ops.oracle import check
from tests.ops.strategies import DTYPES


def call_with_scores(scores: torch.Tensor, dtype: torch.dtype = torch.float32) -> Call:
    """One non-causal query per row of `scores` `[queries, keys]`, which come out exactly.

    Query i is the unit vector of channel i, the keys hold the scores, the scale is 1.
    """
    queries, keys = scores.shape
    head_size = -(-queries // 8) * 8
    case = Case(lengths=((queries, keys),), head_size=head_size, dtype=dtype, causal=False)
    call = make(case.but(num_heads=1, scale=1.0))
    call["query"] = torch.eye(queries, head_size, dtype=dtype)[:, None]
    call["key"].zero_()
    call["key"][:, 0, :queries] = scores.T.to(dtype)
    return call


@pytest.mark.parametrize("step", [1e-3, 0.1, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("direction", [1, -1])
def test_maxima_that_rise_or_fall_along_the_keys(
    direction: int, step: float, splits: bool, isa: str
) -> None:
    """Every tile of keys brings a new maximum: all sums so far are scaled down again and again."""
    keys = torch.arange(1500.0)
    rows = [direction * step * keys, direction * step * (keys // 64), direction * step * keys**0.5]
    check(call_with_scores(torch.stack(rows)))


@pytest.mark.parametrize("jump", [10.0, 88.0, 89.0, 104.0, 127.0, 128.0, 1e4, 1e30])
def test_one_key_far_above_the_rest(jump: float, splits: bool, isa: str) -> None:
    """Keys before the peak must vanish, and nothing may overflow, wherever it lies in a tile."""
    places = (0, 1, 15, 16, 255, 256, 257, 511, 512, 599)
    scores = torch.zeros(len(places), 600)
    for row, place in enumerate(places):
        scores[row, place] = jump
    check(call_with_scores(scores))
    check(call_with_scores(-scores))


@pytest.mark.parametrize("offset", [-1e4, -3e3, -100.0, 100.0, 3e3, 1e4])
def test_scores_far_from_zero(offset: float, splits: bool, isa: str) -> None:
    """Softmax depends on differences alone. float32 holds the scores, integers, exactly."""
    scores = torch.arange(400.0).remainder(13).expand(4, -1) + offset
    check(call_with_scores(scores))


def with_outliers(call: Call, dtype: torch.dtype) -> None:
    """Makes a few channels and a few tokens a hundred times larger, as in real models."""
    call["key"][:, :, 5] *= 100
    call["key"][0] *= 30
    call["value"][0] *= 1e-3
    call["value"][:, :, 7] *= 1000


def with_largest_values(call: Call, dtype: torch.dtype) -> None:
    """Means of numbers near the largest stay finite for float16 and bfloat16 (summed in float32).

    For float32 a sum of weights times values may reach a few times the largest: a 64th is used.
    """
    largest = torch.finfo(dtype).max / (1 if dtype == torch.float16 else 128)
    call["value"] = torch.sign(call["value"].float()).mul(largest).to(dtype)


def with_denormals(part: str) -> Callable[[Call, torch.dtype], None]:
    def change(call: Call, dtype: torch.dtype) -> None:
        tiny = torch.finfo(dtype).smallest_normal / 4
        call[part] = (torch.sign(call[part].float()) * tiny).to(dtype)

    return change


HARD = {
    "outliers": with_outliers,
    "largest": with_largest_values,
    **{f"denormals of {part}": with_denormals(part) for part in ("query", "key", "value")},
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("change", HARD.values(), ids=HARD)
def test_hard_numbers(
    change: Callable[[Call, torch.dtype], None], dtype: torch.dtype, isa: str
) -> None:
    call = make(Case(lengths=((130, 130),), num_heads=4, num_kv_heads=2, dtype=dtype))
    change(call, dtype)
    check(call)


@pytest.mark.parametrize("hidden", [1, 16, 255, 256, 300, 599, 600])
def test_scores_of_minus_infinity(hidden: int, splits: bool, isa: str) -> None:
    """Leading or trailing keys without any weight give no NaN from inf - inf."""
    scores = torch.arange(600.0).remainder(7).repeat(2, 1)
    scores[0, :hidden] = -math.inf
    scores[1, 600 - hidden :] = -math.inf
    call = call_with_infinities(scores)
    check(call)


def test_values_of_keys_without_weight_may_be_nan(isa: str) -> None:
    """A row whose every score is minus infinity gives zeros, whatever the values hold."""
    scores = torch.arange(600.0).remainder(7).repeat(2, 1)
    scores[0] = -math.inf
    call = call_with_infinities(scores)
    call["value"][:, 0] = math.nan
    out, lse = attention_prefill(**call, return_lse=True)
    assert (out[0, 0] == 0).all()
    assert lse[0, 0] == -math.inf
    truth, truth_lse = reference.attention_prefill(arguments(call))
    assert (truth[0, 0] == 0).all()
    assert truth_lse[0, 0] == -math.inf
    call["value"][:, 0] = 0.0
    assert torch.equal(out, attention_prefill(**call)), "the other row is another head's"


@pytest.mark.parametrize("place", [0, 255, 256, 299])
def test_a_score_of_plus_infinity_is_nan_not_a_number(place: int, isa: str) -> None:
    """inf - inf has no value: the row says so, as torch's softmax does; other rows are exact."""
    scores = torch.zeros(2, 300)
    scores[0, place] = math.inf
    call = call_with_infinities(scores)
    out = attention_prefill(**call)
    assert out[0, 0].isnan().all()
    assert out[0, 1].sub(call["value"][:, 1].mean(0)).abs().max() < 1e-5


def call_with_infinities(scores: torch.Tensor) -> Call:
    """The same as `call_with_scores`, with infinities. Since 0 * inf is NaN, each row is a query
    head with its own KV head."""
    rows, keys = scores.shape
    case = Case(lengths=((1, keys),), num_heads=rows, num_kv_heads=rows, head_size=8)
    call = make(case.but(scale=1.0, causal=False))
    call["query"].fill_(0.125)
    call["key"] = scores.T[:, :, None].expand(-1, -1, 8).contiguous()
    return call


LONG = {
    "fresh prompt": Case(lengths=((2200, 2200),), num_heads=1),
    "20000 keys": Case(lengths=((3, 20000),)),
    "not causal": Case(lengths=((50, 4500),), causal=False),
    "long window": Case(lengths=((40, 9000),), sliding_window=4096, sinks=True),
    "long alibi": Case(lengths=((40, 9000),), alibi=True, layout="one [B,H,N,2D]"),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", LONG.values(), ids=LONG)
def test_long_rows(case: Case, dtype: torch.dtype) -> None:
    check(make(case.but(dtype=dtype)))
