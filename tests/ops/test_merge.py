"""`merge_attention`: two partial results by their log-sum-exp, against the whole."""

from __future__ import annotations

import math

import pytest
import torch

from hk_backend import reference
from hk_backend.ops import merge_attention
from tests.ops.cases import nan
from tests.ops.oracle import ROUNDOFF, SMALLEST, U, close
from tests.ops.strategies import DTYPES


def check_merge(
    output_a: torch.Tensor, lse_a: torch.Tensor, output_b: torch.Tensor, lse_b: torch.Tensor
) -> None:
    """Compares a merge with its definition in float64.

    A weight exp(lse - top) carries the roundings of lse, of its change of base, and of the
    exponential. Weights sum to 1, so the output moves by at most that share of |a - b|, which is at
    most |a| + |b|. Five roundings are added, and one to the output's dtype.
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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [1, 2, 15, 64, 70])
@pytest.mark.parametrize("head_size", [8, 64, 72, 256])
@pytest.mark.parametrize("spread", [0.1, 3.0, 50.0, 1e4])
def test_any_two_sides(
    spread: float, head_size: int, tokens: int, dtype: torch.dtype, threads: None, isa: str
) -> None:
    """Any number of threads gives the same bits."""
    random = torch.Generator().manual_seed(0)
    out = torch.randn(2, tokens, 3, head_size, generator=random).to(dtype)
    lse = torch.randn(2, 3, tokens, generator=random) * spread
    check_merge(out[0], lse[0], out[1], lse[1])
    want = merge_attention(out[0], lse[0], out[1], lse[1])
    for count in (2, 3):
        torch.set_num_threads(count)
        found = merge_attention(out[0], lse[0], out[1], lse[1])
        assert all(map(torch.equal, found, want))


def test_a_side_that_saw_no_key_does_not_count(isa: str) -> None:
    """The output of such a side may hold anything, NaN included."""
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
    check_merge(out[:1, ..., 0].expand(70, -1, -1), *sides[1:])
    wide = torch.zeros(70, 2, 130)
    merged, _ = merge_attention(*sides, out=wide[..., 1:129:2])
    assert torch.equal(merged, merge_attention(*(side.contiguous() for side in sides))[0])
    assert (wide[..., 0::2] == 0).all()
    none, _ = merge_attention(*(side[:0] if side.dim() == 3 else side[:, :0] for side in sides))
    assert none.shape == (0, 2, 64)
