"""Activations that the operators rotate: the rotation by definition, the reference's codes bit by
bit, and the layer as it is without any rotation."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch

from hk_backend.ops.quantize_mx import SCALE_ROUNDINGS
from hk_backend.reference.butterflies import rotated_float32
from hk_backend.reference.linear import pack_bits
from hk_backend.reference.rotation import ROTATIONS, hadamard, rotated
from hk_backend.terms.weight_format import FLOAT_DTYPES, MX_BLOCK, ROTATED
from tests.ops.linear_cases import KINDS, X_LAYOUTS, Case, Layer, laid_out, make
from tests.ops.linear_oracle import check
from tests.ops.oracle import U, close
from tests.ops.test_quantize import MX_FORMATS, ON_GPUS_TOO, check_mx, hard_rows

BLOCKS = pytest.mark.parametrize("block", ROTATIONS)


def signs_of(block: int) -> torch.Tensor:
    """Signs of the Hadamard matrix by the parity of i & j, counted bit by bit."""
    parity = [[(i & j).bit_count() % 2 for j in range(block)] for i in range(block)]
    return 1.0 - 2.0 * torch.tensor(parity, dtype=torch.float64)


def outliers(rows: int, k: int) -> torch.Tensor:
    """float32 `[rows, k]`, a thousandth of it a thousand times as large as the rest."""
    random = torch.Generator().manual_seed(9)
    x = torch.randn(rows, k, generator=random)
    return torch.where(torch.rand(rows, k, generator=random) < 1e-3, x * 1e3, x)


@BLOCKS
def test_the_matrix_is_orthogonal(block: int) -> None:
    """The signs are exact; the one magnitude is 1 / sqrt(block), to the last place."""
    signs, matrix = signs_of(block), hadamard(block)
    assert torch.equal(signs @ signs.T, block * torch.eye(block, dtype=torch.float64))
    assert torch.equal(signs, signs.T)
    assert torch.equal(matrix.sign(), signs)
    size = matrix.abs().unique()
    assert size.numel() == 1
    assert (
        abs(size.item() ** 2 * block - 1) <= 4 * 2.0**-53
    )  # its rounding, twice, and the squaring


def allowed(x: torch.Tensor, block: int) -> torch.Tensor:
    """The error that float32 may have: a sum passes log2(block) additions, and one factor that is
    rounded itself (Higham, section 3.1)."""
    roundings = int(math.log2(block)) + 2
    sizes = x.double().abs().unflatten(-1, (-1, block)) @ hadamard(block).abs()
    return roundings * U / (1 - roundings * U) * sizes.flatten(-2) + 2.0**-149


@BLOCKS
@pytest.mark.parametrize("magnitude", [1.0, 1e30, 2.0**-140])
def test_float32_is_as_near_as_it_can_be(magnitude: float, block: int) -> None:
    x = outliers(7, 5 * block) * magnitude
    found = rotated_float32(x, block)
    assert found.dtype == torch.float32
    close("rotated", found, rotated(x, block), allowed(x, block))


@pytest.mark.parametrize("block", [0, 16, 48, 256])
def test_what_is_no_rotation_is_named(block: int) -> None:
    with pytest.raises(ValueError, match=rf"^block: {block} is not valid: expected .*32, 64, 128"):
        rotated(torch.ones(2, 768), block)
    with pytest.raises(ValueError, match=r"^x: 48 channels .* expected a multiple of 32"):
        rotated(torch.ones(2, 48), 32)


FORMATS = pytest.mark.parametrize("format", MX_FORMATS)
ROTATED_KINDS = [(format, rounding) for format, rounding, _ in KINDS if rounding in ROTATED]
ROWS = (1, 3, 9, 16, 17, 70)
"""Rows for each kernel: few in floats, few in integers, in one group and in several; many."""


@ON_GPUS_TOO
@FORMATS
@BLOCKS
def test_codes_of_hard_rows(block: int, format: str, isa: str) -> None:
    """Rows have outliers, ties, denormals, overflowing sums, infinities and NaN. K ends within a
    kernel's step."""
    for dtype, scale_rounding in product(FLOAT_DTYPES, SCALE_ROUNDINGS):
        rows = hard_rows(dtype)
        check_mx(rows[:, : 320 // block * block], format, scale_rounding, block)


@ON_GPUS_TOO
@FORMATS
@BLOCKS
def test_codes_of_outliers(block: int, format: str, isa: str) -> None:
    for blocks in (1, 2, 3, 5):
        check_mx(outliers(40, blocks * block), format, "even", block)


@pytest.mark.parametrize("layout", X_LAYOUTS)
def test_strides(layout: str, isa: str) -> None:
    """NaN lies between the rows and the channels."""
    for m in (1, 6, 30):
        x = torch.randn(m, 192, generator=torch.Generator().manual_seed(5)).bfloat16()
        check_mx(laid_out(x, layout), "mxfp4", "even", 64)
        for activations in ROTATED:
            check(Case("mxfp4", activations, m=m, k=192, rotation=64, x_layout=layout))


@BLOCKS
@pytest.mark.parametrize(("format", "activations"), ROTATED_KINDS)
def test_layers(activations: str, block: int, format: str, isa: str) -> None:
    """K has several blocks, the last alone in a kernel's step; the last case has several chunks of
    rows, for several threads."""
    for i, m in enumerate(ROWS):
        case = Case(format, activations, m=m, n=40, k=(5, 1, 3)[i % 3] * block, rotation=block)
        check(case.but(x_dtype=FLOAT_DTYPES[i // 2], seed=i, bias=torch.bfloat16))
    if format == "mxfp4":
        check(case.but(m=520, k=2560))


def descending(x: torch.Tensor, block: int) -> torch.Tensor:
    """The rotation in float32 with its stages the other way round."""
    values = x.unflatten(-1, (-1, *[2] * (block.bit_length() - 1)))
    for axis in range(2, values.dim()):
        a, b = values.unbind(axis)
        values = torch.stack((a + b, a - b), axis)
    return (values * torch.tensor(block**-0.5)).flatten(1)


@BLOCKS
def test_every_bit_of_the_rotation(block: int, isa: str) -> None:
    """A weight of ones on the diagonal shows the rotated x. Codes and bounds of sums would hardly
    see another order of operations, which has other bits."""
    k = 3 * block
    ones = pack_bits(2 * torch.eye(k, dtype=torch.int64), 4)
    scales = torch.full((k, k // MX_BLOCK), 127, dtype=torch.uint8)
    for m in ROWS:
        x = outliers(m, k)
        layer = Layer(x, ones, "mxfp4", scales, "rotated", rotation=block)
        want = rotated_float32(x, block)
        assert torch.equal(layer.run(), want)
        assert not torch.equal(descending(x, block), want)
        close("descending", descending(x, block), rotated(x, block), allowed(x, block))


@BLOCKS
@pytest.mark.parametrize("activations", ROTATED)
def test_sums_past_float32_are_not_finite(activations: str, block: int, isa: str) -> None:
    """Sums of finite numbers may overflow; their row shows it, as an infinity would."""
    for m in (4, 20):
        case = Case("mxfp4", activations, m=m, k=256, rotation=block, x_dtype=torch.float32)
        layer = make(case)
        layer.x[2] = torch.finfo(torch.float32).max
        assert not rotated_float32(layer.x, block)[2].isfinite().all()
        out = check(layer)
        assert out.isfinite().all(1).tolist() == [row != 2 for row in range(m)]
