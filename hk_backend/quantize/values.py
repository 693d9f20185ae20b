"""Converts codes to float32 values, two short codes at a time by a lookup in a table."""

from __future__ import annotations

from functools import cache

import torch

from hk_backend.ops.weight_codes import factors
from hk_backend.reference.linear import decode, mx_scale_values, pack_bits
from hk_backend.terms.weight_format import FORMATS, MX_BLOCK


def dequantize(codes: torch.Tensor, format: str, scales: torch.Tensor) -> torch.Tensor:
    """The float32 values `[n, k]` of a quantised weight in the layouts of `pack_weight`.

    Exact for mx formats, rounded once for FP8. Scales are one per row `[n, 1]`, per 128x128 block
    or per 32 channels.
    """
    elements = _elements(codes, format)
    n, k = elements.shape
    if FORMATS[format].is_mx:
        of_blocks = mx_scale_values(scales).float()[..., None]
        return elements.view(n, -1, MX_BLOCK).mul_(of_blocks).view(n, k)
    return elements.mul_(factors(scales, format, n, k))


def _elements(codes: torch.Tensor, format: str) -> torch.Tensor:
    bits = FORMATS[format].bits
    if bits == 8:
        return codes.float()
    if bits == 4:
        index = codes.int()
    else:  # three bytes hold two pairs of 6-bit codes
        low, middle, high = codes.int().unflatten(1, (-1, 3)).unbind(-1)
        index = torch.stack([low | (middle & 15) << 8, middle >> 4 | high << 4], -1).flatten(1)
    pairs = _pairs(format).view(torch.int64).flatten()  # both values in one load
    return pairs.index_select(0, index.flatten()).view(torch.float32).view(len(codes), -1)


@cache
def _pairs(format: str) -> torch.Tensor:
    """The two element values of every pair of codes, float32 `[4 ** bits, 2]`."""
    facts = FORMATS[format]
    pair = torch.arange(4**facts.bits)
    both = torch.stack([pair % 2**facts.bits, pair >> facts.bits], -1)
    if facts.bits == 6:  # whole bytes: the pair twice
        return decode(pack_bits(both.repeat(1, 2), 6), facts)[:, :2].float()
    return decode(pack_bits(both, 4), facts).float()
