"""Many rows multiplied in bfloat16: register tiles, blocks along K, scales.

Shapes are small and chosen: they enter each kernel in which the levels with bfloat16 products
differ from AVX-512. An emulated processor runs this file (tests/cpu/test_emulated_isa.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hk_backend.ops import linear, pack_weight
from hk_backend.terms.weight_format import FORMATS, ROTATED
from tests.ops.linear_cases import KINDS, Case, make
from tests.ops.linear_oracle import (
    SMALLEST_NORMAL,
    adds_up_in_integers,
    check,
    flushes_denormals,
)
from tests.ops.test_linear import whole_numbers

ROWS = (*range(1, 18), 28, 31, 32, 33, 49)
"""Few rows; each register tile of vectors; one to four tiles of AMX, full or not."""
LENGTHS = (8, 40, 256, 264, 520, 1032)
"""Parts of a slab, and blocks along K of both levels with what may follow them."""


@pytest.fixture(autouse=True)
def _one_thread(threads: None) -> None:
    """One thread keeps rows together, as many as a register tile takes."""
    torch.set_num_threads(1)


def kinds() -> Iterator[tuple[str, str, str]]:
    """Yield each format, rounding of activations and use of scales that is multiplied in bfloat16.

    Scales of channels and of tensors multiply the same sums: one of them stands for both.
    """
    for format, activations, scales in KINDS:
        integers = adds_up_in_integers(format, activations)
        exact = format not in ("fp16", "fp32") and activations not in ROTATED
        if exact and not integers and scales != "tensor":
            yield format, activations, scales


def exact(case: Case) -> None:
    """Whole numbers: every bit, in whatever order they are summed.

    Rows and blocks of 128 along K have magnitudes of their own, and scales where x is rounded.
    """
    layer = whole_numbers(case)
    rows, blocks = torch.arange(case.m)[:, None] % 3, torch.arange(case.k) // 128 % 3
    layer.x = (layer.x * 2.0**rows * 2.0**blocks).to(layer.x.dtype)
    assert torch.equal(layer.run().double(), layer.exact())


def test_register_tiles(isa: str) -> None:
    for m in ROWS:
        exact(Case("bf16", m=m, n=33, k=40, seed=m))


def test_blocks_along_k(isa: str) -> None:
    for k in LENGTHS:
        exact(Case("bf16", m=18, n=33, k=k, seed=k))


@pytest.mark.parametrize(("format", "activations", "scales"), list(kinds()))
def test_each_kind(format: str, activations: str, scales: str, isa: str) -> None:
    """Columns and K end within a panel, a slab (except for mx) and a block of scales."""
    k = 288 if FORMATS[format].is_mx else 296
    for m, n in ((9, 33), (18, 7)):
        exact(Case(format, activations, scales, m=m, n=n, k=k, seed=m))
    check(Case(format, activations, scales, m=20, n=3, k=160))


def test_scales_of_blocks_of_columns(isa: str) -> None:
    """Columns 0 to 127 and those after them have scales of their own."""
    for activations in ("none", "token_block"):
        exact(Case("fp8_e4m3fn", activations, "block", m=34, n=131, k=264))


def test_every_code_of_eight_bits(isa: str) -> None:
    """Rows that pick one element each show what codes become, scaled or not.

    Scales of a panel's 32 columns are added to bfloat16's exponents if all are moderate: those of
    the first panel are, not those of the second. Products below the least normal number may be
    zero.
    """
    codes = torch.arange(256, dtype=torch.uint8)[(torch.arange(256) & 0x7F) != 0x7F]
    codes = torch.cat([codes, codes[:2]]).reshape(8, 32).repeat(8, 1)
    picked = torch.eye(32, dtype=torch.bfloat16)
    values = codes.view(torch.float8_e4m3fn).double()
    plain = pack_weight(codes.view(torch.float8_e4m3fn), "fp8_e4m3fn", torch.ones(64, 1))
    assert torch.equal(linear(picked, plain, out_dtype=torch.float32).double(), values.T)
    moderate, others = [-100, -99, -1, 0, 1, 99, 100], [-127, -120, -101, 0, 1, 101, 118]
    powers = torch.tensor([*(moderate * 5)[:32], *(others * 5)[:32]])
    scales = (powers + 127).to(torch.uint8)[:, None]
    scaled = pack_weight(codes.view(torch.float8_e4m3fn), "mxfp8", scales)
    expected = values.T * 2.0**powers
    found = linear(picked, scaled, out_dtype=torch.float32).double()
    flushed = (found == 0) & (expected.abs() < SMALLEST_NORMAL)
    assert ((found == expected) | flushed).all()


def test_denormals_are_zero(isa: str) -> None:
    """Factors and products below the least normal number, on the levels that flush them.

    A single row counts them on every level.
    """
    for factors in ((SMALLEST_NORMAL / 2, 1.0), (1.0, SMALLEST_NORMAL / 2), (2.0**-64, 2.0**-63)):
        for m in (1, 9):
            layer = make(Case("bf16", m=m, n=3, k=8))
            layer.x.fill_(factors[0])
            layer.weight.fill_(factors[1])
            flushed = flushes_denormals(layer)
            assert flushed == (isa in ("avx512_bf16", "amx") and m == 9)
            assert (layer.run() == (0.0 if flushed else 8 * factors[0] * factors[1])).all()
