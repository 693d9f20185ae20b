"""The gemm kernel's seams: a shape, a swizzle and epilogues that no shipped kernel has (gemm.hip).

Sums of small integers, scales that are powers of two: every result is exact, then rounded once.
What must not matter is NaN, and buffers end where the contract lets them.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from tests.tiles.launch import GFX942, GFX950, launch

TILE = 64


@dataclass(frozen=True)
class Kernel:
    name: str
    operands: torch.dtype
    out: torch.dtype
    bias: torch.dtype | None = None
    scales: bool = False


KERNELS = [
    Kernel("gemm_bf16_to_bf16", torch.bfloat16, torch.bfloat16),
    Kernel("gemm_f16_to_f32", torch.float16, torch.float32),
    Kernel("gemm_bf16_to_f16_bias", torch.bfloat16, torch.float16, torch.bfloat16),
    Kernel("gemm_bf16_to_f32_scales_bias", torch.bfloat16, torch.float32, torch.float32, True),
]
SHAPES = [(64, 64, 64), (1, 1, 1), (65, 127, 129), (63, 33, 320), (130, 70, 0), (31, 66, 8)]


def rows(values: torch.Tensor, stride: int, last_row: int) -> torch.Tensor:
    """Rows `stride` elements apart, NaN between them; `last_row` elements of the last one."""
    count, length = values.shape
    buffer = torch.full((max(count - 1, 0) * stride + last_row,), torch.nan, dtype=values.dtype)
    if length:
        buffer.as_strided((count, length), (stride, 1)).copy_(values)
    return buffer


def vector(values: torch.Tensor) -> torch.Tensor:
    """Allocated up to the 4 bytes that hold its end, NaN there."""
    size = -(-len(values) * values.element_size() // 4) * 4 // values.element_size()
    return torch.cat([values, torch.full((size - len(values),), torch.nan, dtype=values.dtype)])


@pytest.mark.parametrize("arch", [GFX942, GFX950])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_shape_swizzle_and_epilogue_are_parameters(
    kernel: Kernel, m: int, n: int, k: int, arch: str
) -> None:
    generator = torch.Generator().manual_seed(m + n + k)

    def integers(*shape: int, limit: int = 9) -> torch.Tensor:
        return torch.randint(1 - limit, limit, shape, generator=generator).double()

    a, b, bias = integers(m, k), integers(n, k), integers(n, limit=200)
    scales = [2.0 ** integers(count) for count in (m, n)]
    wanted = a @ b.T
    if kernel.scales:
        wanted *= scales[0][:, None] * scales[1]
    if kernel.bias:
        wanted += bias

    whole, stride = -(-k // 8) * 8, -(-k // 8) * 8 + 8
    c_stride = -(-n // 8) * 8 + 8
    c = rows(torch.full((m, n), torch.nan, dtype=kernel.out), c_stride, n)
    before = c.clone()
    operands = [rows(x.to(kernel.operands), stride, whole if k else 0) for x in (a, b)]
    vectors = [
        vector(bias.to(kernel.bias or torch.float32)),
        *(vector(scale.float()) for scale in scales),
    ]
    launch(
        kernel.name,
        *(x.view(torch.uint8).numpy() for x in (*operands, c, *vectors)),
        numbers=[m, n, k, stride, stride, c_stride],
        waves=4,
        grid=-(-m // TILE) * -(-n // TILE),
        lds=3 * 2 * TILE * TILE * 2,
        arch=arch,
        seed=k,
    )
    found = c.as_strided((m, n), (c_stride, 1))
    assert torch.equal(found, wanted.to(kernel.out))
    found.copy_(before.as_strided((m, n), (c_stride, 1)))
    assert torch.equal(c.view(torch.uint8), before.view(torch.uint8))
