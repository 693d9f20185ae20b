"""The layout of packed weights on a GPU, the order in which gemm kernels read them; made in torch.

The order (csrc/include/hk/args/gemm.hpp) is groups of 16 rows, of which 16 bytes each lie side by
side.
"""

from __future__ import annotations

import torch

from hk_backend.devices.hip import mx_layout
from hk_backend.terms.linear_arguments import PackWeightArguments
from hk_backend.terms.weight_format import FORMATS

READERS = "gemm"
"""Name in the catalogue of the kernels that read this layout."""
GROUP = 16
"""Number of rows that lie together."""
PIECE = 16
"""Bytes of a row that lie together."""
ROWS = 32
"""Number that the first of the rows that are packed at once is a multiple of."""
STEP = 128
"""Bytes of a row that one step of the kernels reads; rows are padded to a multiple."""
AT_ONCE = 4 << 20
"""Bytes of rows that are packed at once, enough to fill a GPU."""
E4M3_NAN = 0x7F
FORMATS_OF = {
    "bf16": torch.int16,
    "fp16": torch.int16,
    "fp8_e4m3fn": torch.uint8,
    **{name: torch.uint8 for name, format in FORMATS.items() if format.is_mx},
}
"""Formats to pack, each with the dtype in which its elements, or their codes, are moved."""


def packed_bytes(format: str, n: int, k: int) -> int:
    """Bytes of a packed weight `[n, k]`, padded with zeros to whole groups and steps.

    In an MX format its scales follow its codes.
    """
    if FORMATS[format].is_mx:
        return mx_layout.code_bytes(format, n, k) + mx_layout.scale_bytes(n, k)
    return -(-n // GROUP) * GROUP * _row_bytes(format, k)


def pack(of: PackWeightArguments) -> None:
    """Writes `of.data`. A NaN code is packed as zero, and the factor of its row becomes NaN.

    Rows are packed a few at a time, as intermediate tensors take several times their memory.
    """
    if of.scales is not None:
        codes = mx_layout.code_bytes(of.format, of.n, of.k)
        of.data[codes:] = mx_layout.packed_scales(of.scales)
    at_once = max(AT_ONCE // _row_bytes(of.format, of.k) // ROWS, 1) * ROWS
    for first in range(0, of.n, at_once):
        _pack_rows(of, first, min(first + at_once, of.n))


def _pack_rows(of: PackWeightArguments, first: int, last: int) -> None:
    """Packs rows `[first, last)`; `first` is a multiple of `ROWS`."""
    dtype = FORMATS_OF[of.format]
    codes = of.weight[first:last].view(dtype)
    if FORMATS[of.format].has_nan_code:
        is_nan = codes & E4M3_NAN == E4M3_NAN
        codes = codes.masked_fill(is_nan, 0)
        if of.factors is not None:
            of.factors[first:last].masked_fill_(is_nan.any(dim=1), torch.nan)
    row_bytes = _row_bytes(of.format, of.k)
    if FORMATS[of.format].is_mx:
        packed = mx_layout.packed_codes(codes, of.format)
        of.data[first * row_bytes :][: packed.numel()] = packed
        return
    per_piece = PIECE // dtype.itemsize
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
    """Reorders each 32 neighbours of a row as 16-bit activations meet them.

    The order is two times 8 for the lower half of a wave, then two times 8 for the upper half
    (csrc/kernels/gemm/format.hpp).
    """
    n, k = codes.shape
    return codes.reshape(n, k // 32, 2, 2, 8).transpose(2, 3).reshape(n, k)


def _row_bytes(format: str, k: int) -> int:
    if FORMATS[format].is_mx:
        return mx_layout.row_bytes(format, k)
    return -(-k * FORMATS_OF[format].itemsize // STEP) * STEP
