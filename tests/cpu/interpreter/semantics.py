"""The plain statement of what AVX512-BF16 and AMX multiply, on bits, in exact arithmetic.

Sources: Intel SDM volume 2, the pages of VDPBF16PS and TDPBF16PS. MXCSR is neither read nor
written: denormals are zeros before and after each operation, rounding is to nearest even, nothing
is signalled. A Zen 5 computes the same bits, but for the payload of a NaN where both are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

SIGN, INFINITY = 0x80000000, 0x7F800000
DEFAULT_NAN = 0xFFC00000
LEAST_EXPONENT, MOST_EXPONENT, PRECISION = -126, 127, 24


def is_nan(bits: int) -> bool:
    return bits & ~SIGN > INFINITY


def is_infinite(bits: int) -> bool:
    return bits & ~SIGN == INFINITY


def value(bits: int) -> Fraction:
    """A finite float32; denormals are zeros."""
    exponent = bits >> 23 & 0xFF
    if exponent == 0:
        return Fraction(0)
    magnitude = Fraction(bits & 0x7FFFFF | 0x800000) * Fraction(2) ** (exponent - 150)
    return -magnitude if bits & SIGN else magnitude


def rounded(exact: Fraction, sign_of_zero: int) -> int:
    """The nearest float32, ties to even; zero where even that is below the least normal number."""
    if exact == 0:
        return sign_of_zero
    sign, magnitude = (SIGN if exact < 0 else 0), abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    significand = round(magnitude / Fraction(2) ** (exponent - PRECISION + 1))  # ties to even
    if significand == 1 << PRECISION:
        significand, exponent = significand >> 1, exponent + 1
    if exponent < LEAST_EXPONENT:
        return sign
    if exponent > MOST_EXPONENT:
        return sign | INFINITY
    return sign | exponent + MOST_EXPONENT << 23 | significand & 0x7FFFFF


def fused(a: int, b: int, c: int) -> int:
    """`a * b + c` of float32, rounded once; any NaN is quiet, its payload not stated."""
    if is_nan(a) or is_nan(b) or is_nan(c):
        return DEFAULT_NAN
    sign = (a ^ b) & SIGN
    if is_infinite(a) or is_infinite(b):
        other = b if is_infinite(a) else a
        opposed = is_infinite(c) and (c & SIGN) != sign
        if opposed or (not is_infinite(other) and value(other) == 0):
            return DEFAULT_NAN
        return sign | INFINITY
    if is_infinite(c):
        return c
    product = value(a) * value(b)
    both_negative = sign and c & SIGN
    if product == 0 and value(c) == 0:
        return SIGN if both_negative else 0
    return rounded(product + value(c), 0)


ONE = 0x3F800000


def added(a: int, b: int) -> int:
    return fused(a, ONE, b)


def even(pair: int) -> int:
    """The lower bfloat16 of two, as float32."""
    return pair << 16 & 0xFFFFFFFF


def odd(pair: int) -> int:
    return pair & 0xFFFF0000


def vdpbf16ps(total: int, a: int, b: int) -> int:
    """Two fused steps, the odd elements first."""
    return fused(even(a), even(b), fused(odd(a), odd(b), total))


def tdpbf16ps(total: int, row: Sequence[int], column: Sequence[int]) -> int:
    """Sums of even and of odd products along K, added to each other, then to the destination."""
    evens = odds = 0
    for a, b in zip(row, column, strict=True):
        evens = fused(even(a), even(b), evens)
        odds = fused(odd(a), odd(b), odds)
    return added(total, added(evens, odds))
