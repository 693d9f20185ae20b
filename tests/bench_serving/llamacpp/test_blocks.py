"""Matrices in GGML's types, read back by the gguf package."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants

from bench_serving.llamacpp import blocks
from bench_serving.llamacpp.blocks import encode

BF16, Q4_0, Q6_K, Q8_0 = (GGMLQuantizationType[name] for name in ("BF16", "Q4_0", "Q6_K", "Q8_0"))


def read(matrix: torch.Tensor, kind: GGMLQuantizationType) -> torch.Tensor:
    return torch.from_numpy(quants.dequantize(encode(matrix, kind), kind))


def largest(matrix: torch.Tensor, group: int) -> torch.Tensor:
    """The largest magnitude of each value's group, at each value."""
    top = matrix.abs().unflatten(1, (-1, group)).amax(-1)
    return top.repeat_interleave(group, dim=1)


def test_bf16_is_torch_s() -> None:
    matrix = torch.randn(5, 96, generator=torch.Generator().manual_seed(0))
    assert torch.equal(read(matrix, BF16), matrix.bfloat16().float())


def q6_k_bound(matrix: torch.Tensor) -> torch.Tensor:
    """A step is a 32nd of the group's largest weight, which the scale's own rounding, to a 128th of
    the block's largest scale, moves by half of that; times 32 steps that is a 256th of the block's
    largest weight. Half a percent: the block's step in float16, and float32."""
    return 1.005 * (largest(matrix, 16) / 32 + largest(matrix, 256) / 256)


@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_q6_k_is_as_near_as_its_scales_allow(spread: float) -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(64, 512, generator=generator)
    groups = torch.randn(64, 32, generator=generator).mul(spread).exp()
    matrix *= groups.repeat_interleave(16, dim=1)
    assert ((read(matrix, Q6_K) - matrix).abs() <= q6_k_bound(matrix)).all()


def test_q6_k_stores_zeros_and_its_own_values_exactly() -> None:
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(-32, 32, (2, 256), generator=generator).float()
    codes[0, ::16] = -32  # a step of 1 in every group
    codes[1] = 0
    assert torch.equal(read(codes, Q6_K), codes)


@pytest.mark.parametrize("kind", [BF16, Q4_0, Q6_K, Q8_0])
def test_rows_at_a_time_make_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch, kind: GGMLQuantizationType
) -> None:
    matrix = torch.randn(7, 256, generator=torch.Generator().manual_seed(0)).half()
    whole = encode(matrix, kind)
    monkeypatch.setattr(blocks, "AT_ONCE", 3 * 256)
    assert np.array_equal(encode(matrix, kind), whole)


@pytest.mark.parametrize(("kind", "columns"), [(Q6_K, 288), (Q4_0, 40)])
def test_half_a_block_is_refused(kind: GGMLQuantizationType, columns: int) -> None:
    with pytest.raises(quants.QuantError, match=f"shape .*{columns}.* to {kind.name}"):
        encode(torch.zeros(2, columns), kind)
