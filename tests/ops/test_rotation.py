"""The rotation by definition: orthogonal, exact where it should be, and, in the float32 operations
that devices follow, as near to it as these can be."""

from __future__ import annotations

import math

import pytest
import torch

from hk_backend.reference.butterflies import rotated_float32
from hk_backend.reference.rotation import ROTATIONS, hadamard, rotated
from tests.ops.oracle import U, close

BLOCKS = pytest.mark.parametrize("block", ROTATIONS)


def signs_of(block: int) -> torch.Tensor:
    """Of the parity of i & j, counted bit by bit."""
    parity = [[(i & j).bit_count() % 2 for j in range(block)] for i in range(block)]
    return 1.0 - 2.0 * torch.tensor(parity, dtype=torch.float64)


def factor(block: int) -> torch.Tensor:
    """What float32 holds of 1 / sqrt(block)."""
    return torch.tensor(1 / math.sqrt(block), dtype=torch.float32)


def outliers(rows: int, k: int) -> torch.Tensor:
    """float32 `[rows, k]`, a thousandth of it a thousand times as large as the rest."""
    random = torch.Generator().manual_seed(9)
    x = torch.randn(rows, k, generator=random)
    return torch.where(torch.rand(rows, k, generator=random) < 1e-3, x * 1e3, x)


@BLOCKS
def test_the_matrix_is_orthogonal(block: int) -> None:
    """Its signs exactly, whole numbers; its one magnitude is 1 / sqrt(block), to the last place."""
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
    """What float32 may stray: a sum passes log2(block) additions, and one factor that is rounded
    itself (Higham, section 3.1)."""
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


@BLOCKS
def test_one_channel_comes_out_in_all_exactly(block: int) -> None:
    """A power of two: every sum is that, or its negative, and the factor's product is exact."""
    for exponent in (-100, 0, 90):
        x = torch.eye(block) * 2.0**exponent
        want = signs_of(block).float() * factor(block) * 2.0**exponent
        assert torch.equal(rotated_float32(x, block), want)
        if block == 64:  # a power of two, too
            assert torch.equal(rotated(x, block), want.double())


@pytest.mark.parametrize("block", [0, 16, 48, 256])
def test_what_is_no_rotation_is_named(block: int) -> None:
    with pytest.raises(ValueError, match=rf"^block: {block} is not valid: expected .*32, 64, 128"):
        rotated(torch.ones(2, 768), block)
    with pytest.raises(ValueError, match=r"^x: 48 channels .* expected a multiple of 32"):
        rotated(torch.ones(2, 48), 32)
