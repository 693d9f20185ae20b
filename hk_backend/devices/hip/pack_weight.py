"""`pack_weight` on a GPU, in torch: the order in which the gemm kernels read a weight
(csrc/include/hk/args/gemm.hpp): groups of 16 rows, of which 16 bytes each lie side by side.
"""

from __future__ import annotations

import torch

from hk_backend.terms.linear_arguments import PackWeightArguments
from hk_backend.terms.weight_format import FORMATS

GROUP = 16
"""Rows that lie together."""
PIECE = 16
"""Bytes of a row that lie together."""
STEP = 128
"""Bytes of a row that a step of the kernels reads: rows are padded to a multiple of it."""
AT_ONCE = 4 << 20
"""Bytes of rows that are packed together: enough to fill a GPU."""
E4M3_NAN = 0x7F
FORMATS_OF = {"bf16": torch.int16, "fp16": torch.int16, "fp8_e4m3fn": torch.uint8}
"""What is packed, and what its elements are moved as."""


def packed_bytes(format: str, n: int, k: int) -> int:
    """Bytes of a packed weight `[n, k]`: zeros up to whole groups and steps."""
    return -(-n // GROUP) * GROUP * _row_bytes(format, k)


def pack_weight(of: PackWeightArguments) -> None:
    """Write `of.data`; NaN into the factors of rows with a NaN code, which is packed as zero.

    A few rows at a time: what is made on the way takes a few times their memory.
    """
    at_once = max(AT_ONCE // _row_bytes(of.format, of.k) // GROUP, 1) * GROUP
    for first in range(0, of.n, at_once):
        _pack_rows(of, first, min(first + at_once, of.n))


def _pack_rows(of: PackWeightArguments, first: int, last: int) -> None:
    """Rows `[first, last)`; `first` is that of a group."""
    dtype = FORMATS_OF[of.format]
    codes = of.weight[first:last].view(dtype)
    if FORMATS[of.format].has_nan_code:
        is_nan = codes & E4M3_NAN == E4M3_NAN
        codes = codes.masked_fill(is_nan, 0)
        if of.factors is not None:
            of.factors[first:last].masked_fill_(is_nan.any(dim=1), torch.nan)
    per_piece, row_bytes = PIECE // dtype.itemsize, _row_bytes(of.format, of.k)
    groups, pieces = -(-(last - first) // GROUP), row_bytes // PIECE
    missing = (groups * GROUP - (last - first), pieces * per_piece - of.k)
    if any(missing):
        codes = torch.nn.functional.pad(codes, (0, missing[1], 0, missing[0]))
    if of.format.startswith("fp8") and of.activations == "none":
        codes = _for_widening(codes)
    start = first * row_bytes
    packed = of.data[start : start + groups * GROUP * row_bytes].view(dtype)
    packed = packed.view(groups, pieces, GROUP, per_piece)
    packed.copy_(codes.view(groups, GROUP, pieces, per_piece).transpose(1, 2))


def _for_widening(codes: torch.Tensor) -> torch.Tensor:
    """Each 32 neighbours of a row in the order in which 16-bit activations meet them: two times 8
    for the lower half of a wave, then for the upper one (csrc/kernels/gemm/format.hpp)."""
    n, k = codes.shape
    return codes.reshape(n, k // 32, 2, 2, 8).transpose(2, 3).reshape(n, k)


def _row_bytes(format: str, k: int) -> int:
    return -(-k * FORMATS_OF[format].itemsize // STEP) * STEP
