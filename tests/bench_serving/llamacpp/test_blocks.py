"""Matrices in GGML's types, read back by the gguf package."""

from __future__ import annotations

import pytest
import torch
from gguf import GGMLQuantizationType, quants

from bench_serving.llamacpp.blocks import encode

BF16, Q4_0, Q6_K, Q8_0 = (GGMLQuantizationType[name] for name in ("BF16", "Q4_0", "Q6_K", "Q8_0"))


def read(matrix: torch.Tensor, kind: GGMLQuantizationType) -> torch.Tensor:
    return torch.from_numpy(quants.dequantize(encode(matrix, kind), kind))


def largest(matrix: torch.Tensor, group: int) -> torch.Tensor:
    """The largest magnitude of each value's group, at each value."""
    top = matrix.abs().unflatten(1, (-1, group)).amax(-1)
    return top.repeat_interleave(group, dim=1)


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
