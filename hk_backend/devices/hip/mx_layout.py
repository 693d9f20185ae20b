"""The layout of operands in MX formats on a GPU, weights and activations alike.

The order is that of the matrix unit (csrc/include/hk/args/gemm.hpp). Codes lie in groups of 16
rows, of which 16 bytes each lie side by side. 6-bit codes have an order of their own: 64 of a row
take 48 bytes. Each half of a wave reads 24 of them, its own 32 codes. Scales lie in words of four,
32 rows together (csrc/kernels/gemm/mx_scales.hpp).
"""

from __future__ import annotations

import torch

from hk_backend.terms.weight_format import FORMATS, MX_BLOCK

GROUP = 16
"""Number of rows whose codes lie together."""
WORD_ROWS = 32
"""Number of rows whose scales lie together."""
DEPTH = 256
"""Elements to a multiple of which rows are padded, and which a scale word covers in both halves."""
PART = 64
"""Elements of a row that the matrix unit multiplies at once."""


def row_bytes(format: str, k: int) -> int:
    """Bytes of the codes of a row."""
    return -(-k // DEPTH) * DEPTH * FORMATS[format].bits // 8


def code_bytes(format: str, rows: int, k: int) -> int:
    """Bytes of the codes of `[rows, k]`."""
    return -(-rows // GROUP) * GROUP * row_bytes(format, k)


def scale_bytes(rows: int, k: int) -> int:
    """Bytes of the scales of `[rows, k]`."""
    return -(-rows // WORD_ROWS) * WORD_ROWS * (-(-k // DEPTH) * DEPTH // MX_BLOCK)


def packed_codes(codes: torch.Tensor, format: str) -> torch.Tensor:
    """Codes uint8 `[rows, k * bits / 8]` in the kernels' order: uint8 `[code_bytes]`."""
    bits = FORMATS[format].bits
    part = PART * bits // 8
    rows, length = codes.shape
    missing = -rows % GROUP, -length % (DEPTH * bits // 8)
    whole = torch.nn.functional.pad(codes, (0, missing[1], 0, missing[0])).contiguous()
    groups = whole.view(-1, GROUP, whole.shape[1] // part, part).transpose(1, 2)
    if bits != 6:
        packed: torch.Tensor = groups.unflatten(3, (-1, 16)).transpose(2, 3).flatten()
        return packed
    # [groups, parts, 16 rows, 2 halves, 24 bytes]
    halves = groups.unflatten(3, (2, 24))
    first = halves[..., :16].transpose(2, 3).flatten(2)
    rest = halves[..., 16:].transpose(2, 3).clone()  # [groups, parts, 2 halves, 16 rows, 8 bytes]
    rest[1::2] = rest[1::2].flip(2)
    return torch.cat([first, rest.flatten(2)], 2).flatten()


def packed_scales(scales: torch.Tensor) -> torch.Tensor:
    """e8m0 codes uint8 `[rows, k / 32]` in the kernels' order: uint8 `[scale_bytes]`.

    A word holds the scales of one row and one half of the wave, of four parts.
    """
    rows, blocks = scales.shape
    missing = -rows % WORD_ROWS, -blocks % 8
    whole = torch.nn.functional.pad(scales, (0, missing[1], 0, missing[0])).contiguous()
    words = whole.view(-1, WORD_ROWS, whole.shape[1] // 8, 4, 2)
    return words.permute(0, 2, 4, 1, 3).flatten()
