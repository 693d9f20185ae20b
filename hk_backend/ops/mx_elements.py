"""Rounds values that were divided by their scales to the elements of a format, exactly.

`hk_backend.ops.quantize_mx` chooses its scales itself; callers of this module choose them.
"""

from __future__ import annotations

import torch

from hk_backend.terms.weight_format import FORMATS, Format

EXPONENT = 0x7F800000
"""The bits of float32's exponent."""


def nearest(values: torch.Tensor, format: str) -> torch.Tensor:
    """The element nearest to each of `values`, ties to even, saturating; float32, any shape."""
    facts = FORMATS[format]
    size = values.abs().clamp_(max=facts.max)
    exponent = (size.view(torch.int32) & EXPONENT).clamp_(min=_min_exponent(facts) + 127 << 23)
    step = exponent.sub_(facts.mantissa_bits << 23).view(torch.float32)
    rounded: torch.Tensor = (size / step).round_().mul_(step)
    return rounded.copysign_(values)


def packed(elements: torch.Tensor, format: str) -> torch.Tensor:
    """Codes of values `[n, k]` that `nearest` returned, in the layout of `pack_weight`."""
    facts = FORMATS[format]
    if facts.bits == 8:
        return elements.to(facts.dtype)
    size = elements.abs()
    exponent = _exponent(size, facts)
    # a normal mantissa's leading one adds 1 to the exponent field; a denormal has none
    codes = (size / _power_of_two(exponent - facts.mantissa_bits)).int()
    codes += exponent - _min_exponent(facts) << facts.mantissa_bits
    codes |= elements.signbit().int() << facts.bits - 1
    if facts.bits == 4:
        low, high = codes.unflatten(1, (-1, 2)).unbind(-1)
        octets: torch.Tensor = low | high << 4
        return octets.to(torch.uint8)
    a, b, c, d = codes.unflatten(1, (-1, 4)).unbind(-1)  # four 6-bit codes are three bytes
    octets = torch.stack([a | b << 6, b >> 2 | c << 4, c >> 4 | d << 2], -1) & 255
    return octets.flatten(1).to(torch.uint8)


def _power_of_two(exponent: torch.Tensor) -> torch.Tensor:
    """2 to the power of int32 exponents of normal float32 numbers, exact as it sets the bits."""
    bits: torch.Tensor = (exponent + 127) << 23
    return bits.view(torch.float32)


def _exponent(size: torch.Tensor, facts: Format) -> torch.Tensor:
    """Exponent of `size`, at least that of the smallest normal element; int32.

    The step between elements around `size` is 2 to that exponent, less `mantissa_bits`.
    """
    return ((size.view(torch.int32) >> 23) - 127).clamp_(min=_min_exponent(facts))


def _min_exponent(facts: Format) -> int:
    """Exponent of the smallest normal element."""
    exponent_bits = facts.bits - 1 - facts.mantissa_bits
    return 2 - (1 << exponent_bits - 1)
