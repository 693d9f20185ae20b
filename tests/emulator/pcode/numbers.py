"""The numbers of the pseudo-code: bits with a type. Float arithmetic is numpy's, fma exact through
Fraction."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

_FORMATS: dict[int, tuple[Any, Any]] = {
    16: (np.float16, np.uint16),
    32: (np.float32, np.uint32),
    64: (np.float64, np.uint64),
}


MANTISSA = {16: 10, 32: 23, 64: 52}
_BIAS = {16: 15, 32: 127, 64: 1023}


class NotExecutable(Exception):
    """The pseudo-code uses something that the guide does not define."""


class Value(NamedTuple):
    kind: str  # u, i, f
    width: int
    bits: int

    @property
    def number(self) -> Any:
        """A Python int, or numpy's float of this width."""
        if self.kind == "f":
            float_type, int_type = _FORMATS[self.width]
            return np.array([self.bits], int_type).view(float_type)[0]
        if self.kind == "i" and self.bits >> (self.width - 1):
            return self.bits - (1 << self.width)
        return self.bits

    def nan(self) -> bool:
        m = MANTISSA[self.width]
        magnitude = self.bits & ((1 << (self.width - 1)) - 1)
        return magnitude > ((1 << (self.width - 1)) - (1 << m))

    def quiet(self) -> bool:
        return bool(self.bits >> (MANTISSA[self.width] - 1) & 1)


def unsigned(bits: int, width: int = 32) -> Value:
    return Value("u", width, bits & ((1 << width) - 1))


def signed(bits: int, width: int = 32) -> Value:
    return Value("i", width, bits & ((1 << width) - 1))


def floating(number: Any, width: int) -> Value:
    float_type, int_type = _FORMATS[width]
    with np.errstate(all="ignore"):
        return Value("f", width, int(np.array([number]).astype(float_type).view(int_type)[0]))


def convert(value: Value, width: int) -> Value:
    """Converts between float widths. A NaN keeps its upper payload and, if it widens, whether it
    signals."""
    if value.width == width:
        return value
    if value.nan():
        shift = MANTISSA[width] - MANTISSA[value.width]
        payload = value.bits & ((1 << MANTISSA[value.width]) - 1)
        if shift >= 0:
            payload <<= shift
        else:  # narrowing makes it quiet
            payload = payload >> -shift | 1 << (MANTISSA[width] - 1)
        sign = value.bits >> (value.width - 1) << (width - 1)
        top = (1 << (width - 1)) - (1 << MANTISSA[width])
        return Value("f", width, sign | top | payload)
    return floating(value.number, width)


def round_fraction(exact: Fraction, width: int, negative_zero: bool = False) -> Value:
    """Rounds an exact rational number to nearest even."""
    mantissa, bias = MANTISSA[width], _BIAS[width]
    sign = 1 if exact < 0 or (exact == 0 and negative_zero) else 0
    exact = abs(exact)
    bits = 0
    if exact:
        exponent = max(math.floor(math.log2(exact.numerator) - math.log2(exact.denominator)), -9999)
        while Fraction(2) ** exponent > exact:
            exponent -= 1
        while Fraction(2) ** (exponent + 1) <= exact:
            exponent += 1
        exponent = max(exponent, 1 - bias)
        scaled = exact / Fraction(2) ** (exponent - mantissa)
        rounded = round(scaled)  # Python rounds halves to even
        bits = rounded + ((exponent + bias - 1) << mantissa)
        bits = min(bits, (1 << (width - 1)) - (1 << mantissa))
    return Value("f", width, sign << (width - 1) | bits)


def fma(a: Value, b: Value, c: Value) -> Value:
    x, y, z = (v.number for v in (a, b, c))
    if all(np.isfinite(v) for v in (x, y, z)):
        product = Fraction(float(x)) * Fraction(float(y))
        exact = product + Fraction(float(z))
        negative = (a.bits ^ b.bits) >> (a.width - 1) & 1
        zero_sign = bool(negative and c.bits >> (c.width - 1))
        if product != 0 and exact == 0:
            zero_sign = False
        return round_fraction(exact, a.width, zero_sign)
    with np.errstate(all="ignore"):
        # the product of finite numbers is finite to an exact fma
        product = np.float64(x) * np.float64(y) if a.width < 64 else x * y
        if np.isfinite(x) and np.isfinite(y):
            product = np.float64(0)
        return floating(product + np.float64(z), a.width)


def minimum_2019(a: Value, b: Value, maximum: bool) -> Value:
    """minimum and maximum of IEEE 754-2019: a NaN wins, -0 < +0."""
    for v in (a, b):
        if v.nan():
            return Value("f", v.width, v.bits | 1 << (MANTISSA[v.width] - 1))
    key = [(v.number, not v.bits >> (v.width - 1)) for v in (a, b)]
    return a if (key[0] > key[1]) == maximum else b


def literal(text: str) -> Value:
    if text.startswith("0x"):
        digits = text.rstrip("UL")
        return Value(
            "u" if "U" in text else "i",
            64 if "LL" in text or len(digits) > 10 else 32,
            int(digits, 16),
        )
    if "." in text or text.endswith("F"):
        return floating(float(text.rstrip("F")), 32 if text.endswith("F") else 64)
    digits = text.rstrip("UL")
    return Value("u" if "U" in text else "i", 64 if "LL" in text else 32, int(digits))


def cast(value: Value, kind: str, width: int, from_bits: bool) -> Value:
    if value.kind == "power":
        return value
    if kind == "f":
        if value.kind == "f":
            return convert(value, width)
        return Value("f", width, value.bits) if from_bits else floating(value.number, width)
    bits = int(value.number) if value.kind == "i" else value.bits
    return Value("u" if kind == "b" else kind, width, bits & ((1 << width) - 1))


def exponent_of(value: Value) -> int:
    m = MANTISSA[value.width]
    return value.bits >> m & ((1 << (value.width - 1 - m)) - 1)
