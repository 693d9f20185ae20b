"""`quantize_mx` hands x to a kernel as it lies if kernels can read it so, else a copy."""

from __future__ import annotations

import pytest
import torch

from hk_backend.devices.hip import quantize_mx
from hk_backend.devices.hip.call import KernelCall
from hk_backend.kernels import catalogue
from hk_backend.terms.linear_arguments import QuantizeMxArguments

K = 64


def prepare(x: torch.Tensor, offset: int = 0) -> KernelCall:
    """The launch for `x` and mxfp4, with codes that begin `offset` bytes behind an aligned
    address."""
    m, k = x.shape
    codes = torch.empty(m * k // 2 + offset, dtype=torch.uint8)[offset:].view(m, k // 2)
    scales = torch.empty(m, k // 32, dtype=torch.uint8)
    arguments = QuantizeMxArguments(x, "mxfp4", 0, True, codes, scales)
    return quantize_mx.OPERATOR.prepare(arguments, catalogue("gfx950"))


@pytest.mark.parametrize(("begin", "stride"), [(0, K), (8, K + 8), (16, 2 * K), (0, 0)], ids=str)
def test_rows_of_whole_pieces_are_read_where_they_lie(begin: int, stride: int) -> None:
    x = torch.zeros(8 * K, dtype=torch.bfloat16)[begin:].as_strided((3, K), (stride, 1))
    call = prepare(x)
    assert call.tensors["x"] is x
    assert call.numbers["x_row"] == stride


@pytest.mark.parametrize(
    ("begin", "stride"), [(1, K), (4, K), (0, K + 4), (0, quantize_mx.STRIDE)], ids=str
)
def test_other_rows_are_copied(begin: int, stride: int) -> None:
    whole = torch.empty(begin + 2 * stride + K, dtype=torch.bfloat16)
    x = whole.as_strided((3, K), (stride, 1), begin)
    x.copy_(torch.randn(3, K))
    call = prepare(x)
    copy = call.tensors["x"]
    assert torch.equal(copy, x)
    assert copy.data_ptr() != x.data_ptr()
    assert call.numbers["x_row"] == K


def test_the_stride_of_a_single_row_does_not_matter() -> None:
    x = torch.zeros(K, dtype=torch.bfloat16).as_strided((1, K), (3, 1))
    call = prepare(x)
    assert call.tensors["x"] is x
    assert call.numbers["x_row"] == K


def test_what_kernels_cannot_address_is_refused() -> None:
    rows = torch.zeros(1, K, dtype=torch.bfloat16).expand(quantize_mx.ROWS, K)
    with pytest.raises(ValueError, match=rf"x: \({quantize_mx.ROWS}, 64\) .* fewer than"):
        prepare(rows)
    with pytest.raises(ValueError, match=r"codes: an address of .* a multiple of 16"):
        prepare(torch.zeros(3, K, dtype=torch.bfloat16), offset=8)
