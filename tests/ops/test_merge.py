"""`merge_attention`: two partial results by their log-sum-exp, against the whole."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hk_backend import reference
from hk_backend.ops import attention_prefill, merge_attention
from tests.ops.cases import Call, Case, int32, make, nan, running_total
from tests.ops.oracle import ROUNDOFF, SMALLEST, U, close, expected
from tests.ops.strategies import DTYPES, generated


def check_merge(
    output_a: torch.Tensor, lse_a: torch.Tensor, output_b: torch.Tensor, lse_b: torch.Tensor
) -> None:
    """Against the definition in float64.

    A weight exp(lse - top) carries the roundings of lse (its conversion to another base
    included) and of the exponential; weights sum to 1, so the output moves by at most that share
    of |a - b| <= |a| + |b|, plus five roundings, plus one to the output's dtype.
    """
    want, want_lse = reference.merge_attention(output_a, lse_a, output_b, lse_b)
    out, lse = merge_attention(output_a, lse_a, output_b, lse_b)
    assert out.dtype == output_a.dtype
    assert lse.dtype == torch.float32
    sides = torch.stack([lse_a.double(), lse_b.double()])
    weights = torch.where(sides == -math.inf, 0.0, torch.exp(sides - want_lse))
    size = torch.where(sides == -math.inf, 0.0, sides.abs()).amax(0)
    strayed = (4 * size + 16) * U
    # p(1 - p): how far a share moves when its exponent does
    share = (weights[0] * weights[1] * strayed.expm1() * 2).T[:, :, None]
    values = torch.stack([output_a.double(), output_b.double()])
    values = torch.where((weights > 0).transpose(1, 2)[..., None], values, 0.0)
    mixed = (weights.transpose(1, 2)[..., None] * values.abs()).sum(0)
    flushed = 2.0**-125 * (1 + values.abs().sum(0))
    bound = share * (values[0] - values[1]).abs() + 8 * U * mixed + flushed
    bound += ROUNDOFF[out.dtype] * (want.abs() + bound) + SMALLEST[out.dtype]
    close("out", out, want, bound)
    close("lse", lse, want_lse, torch.where(want_lse.isfinite(), 2 * strayed, 0.0))


def partial(call: Call, split: int) -> tuple[Call, Call]:
    """Keys before and from `split`: the first half is seen by every query, the second as before."""
    starts = call["key_start_loc"].tolist()
    pairs = list(itertools.pairwise(starts))
    halves = []
    for ranges in ([(a, a + split) for a, _ in pairs], [(a + split, b) for a, b in pairs]):
        index = [token for first, last in ranges for token in range(first, last)]
        keys = {name: call[name][index] for name in ("key", "value")}
        lengths = [last - first for first, last in ranges]
        halves.append(call | keys | {"key_start_loc": int32(running_total(0, lengths))})
    return halves[0] | {"causal": False}, halves[1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("split", [0, 1, 16, 39, 40])
def test_split_keys_merge_to_the_whole(
    split: int, causal: bool, dtype: torch.dtype, isa: str
) -> None:
    """As a prefix cache does: attention over the cached keys, and over the new ones."""
    case = Case(lengths=((20, 60), (1, 41), (9, 49)), num_heads=4, num_kv_heads=2, dtype=dtype)
    call = make(case.but(causal=causal))
    prefix, suffix = partial(call, split)
    (out_a, lse_a), (out_b, lse_b) = (
        attention_prefill(**half, return_lse=True) for half in (prefix, suffix)
    )
    check_merge(out_a, lse_a, out_b, lse_b)
    out, lse = merge_attention(out_a, lse_a, out_b, lse_b)
    # each side is rounded to the dtype once more than the whole: its bound counts again
    whole, halves = expected(call), [expected(prefix), expected(suffix)]
    bound = whole.out_bound + ROUNDOFF[dtype] * whole.out.abs()
    lse_bound = whole.lse_bound.clone()
    for half in halves:
        share = torch.exp(half.lse - whole.lse)
        moved = half.out_bound + half.lse_bound.T[:, :, None] * (half.out - whole.out).abs()
        bound += 1.01 * share.T[:, :, None] * moved
        lse_bound += 1.01 * share * half.lse_bound
    lse_bound += 32 * U * (1 + whole.lse.abs())
    close("out", out, whole.out, bound)
    close("lse", lse, whole.lse, lse_bound)


@given(
    st.sampled_from(DTYPES),
    st.sampled_from((1, 2, 15, 64, 70)),
    st.sampled_from((8, 64, 72, 256)),
    st.sampled_from((0.1, 3.0, 50.0, 1e4)),
    st.integers(0, 2**16),
)
@generated(examples=60)
def test_any_two_sides(
    dtype: torch.dtype, tokens: int, head_size: int, spread: float, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    out = torch.randn(2, tokens, 3, head_size, generator=random).to(dtype)
    lse = torch.randn(2, 3, tokens, generator=random) * spread
    check_merge(out[0], lse[0], out[1], lse[1])


def test_a_side_that_saw_no_key_does_not_count(isa: str) -> None:
    """Whatever its output holds, NaN included."""
    out, lse = torch.randn(40, 3, 64), torch.randn(3, 40)
    junk, nothing = nan(40, 3, 64, dtype=torch.float32), torch.full((3, 40), -math.inf)
    for sides in ((out, lse, junk, nothing), (junk, nothing, out, lse)):
        check_merge(*sides)
        merged, total = merge_attention(*sides)
        torch.testing.assert_close(merged, out, rtol=2**-22, atol=0)
        torch.testing.assert_close(total, lse, rtol=2**-21, atol=2**-21)
    merged, total = merge_attention(junk, nothing, junk, nothing)
    assert torch.equal(merged, torch.zeros_like(merged))
    assert torch.equal(total, nothing)


def test_a_nan_is_not_lost(isa: str) -> None:
    out, lse = torch.randn(5, 2, 8), torch.randn(2, 5)
    spoiled = out.clone()
    spoiled[3, 1, 4] = torch.nan
    merged, _ = merge_attention(spoiled, lse, out, lse)
    assert merged.isnan().nonzero().tolist() == [[3, 1, 4]]
    unknown = lse.clone()
    unknown[1, 2] = torch.nan
    merged, total = merge_attention(out, unknown, out, lse)
    assert total.isnan().nonzero().tolist() == [[1, 2]]
    assert merged[2, 1].isnan().all()
    assert int(merged.isnan().sum()) == 8


@pytest.mark.parametrize("which", ["output_a", "output_b"])
def test_writes_over_one_of_its_sides(which: str, isa: str) -> None:
    out, lse = torch.randn(2, 70, 3, 64), torch.randn(2, 3, 70)
    want, _ = merge_attention(out[0], lse[0], out[1], lse[1])
    target = out[0] if which == "output_a" else out[1]
    merged, _ = merge_attention(out[0], lse[0], out[1], lse[1], out=target)
    assert merged is target
    assert torch.equal(target, want)


def test_any_strides(isa: str) -> None:
    out = torch.randn(64, 70, 2, 3).permute(1, 2, 0, 3)
    lse = torch.randn(70, 2, 3).transpose(0, 1)
    sides = (out[..., 0], lse[..., 0], out[..., 2], lse[..., 2])
    check_merge(*sides)
    wide = torch.zeros(70, 2, 130)
    merged, _ = merge_attention(*sides, out=wide[..., 1:129:2])
    assert torch.equal(merged, merge_attention(*(side.contiguous() for side in sides))[0])
    assert (wide[..., 0::2] == 0).all()


def test_no_tokens(isa: str) -> None:
    out, lse = torch.empty(0, 3, 64), torch.empty(3, 0)
    merged, total = merge_attention(out, lse, out, lse)
    assert merged.shape == (0, 3, 64)
    assert total.shape == (3, 0)
