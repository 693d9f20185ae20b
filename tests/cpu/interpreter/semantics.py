"""The plain statement of what AVX512-BF16, VNNI and AMX compute, on bits, in exact arithmetic.

Sources: Intel SDM volume 2, the pages of VDPBF16PS, VCVTNEPS2BF16, VPDPBUSD, VPDPWSSD, TDPBF16PS
and TDPBSSD. MXCSR is neither read nor written: denormals are zeros before and after each operation,
rounding is to nearest even, nothing is signalled. A Zen 5 computes the same bits, but for the
payload of a NaN where both factors are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

SIGN, INFINITY, QUIET = 0x80000000, 0x7F800000, 0x00400000
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


def bfloat16(bits: int) -> int:
    """vcvtneps2bf16: a float32 to the nearest bfloat16, ties to even; denormals become zeros."""
    if is_nan(bits):
        return (bits | QUIET) >> 16
    if bits & ~SIGN < 0x00800000:
        return bits >> 16 & 0x8000
    lower, upper = bits & 0xFFFF, bits >> 16
    up = lower > 0x8000 or (lower == 0x8000 and upper & 1)
    return upper + up  # the largest become infinity


def integers(pair: int, bits: int, signed: bool) -> list[int]:
    """The integers of so many bits in a dword, the lowest first."""
    found = [pair >> shift & (1 << bits) - 1 for shift in range(0, 32, bits)]
    return [x - (1 << bits) if signed and x >> bits - 1 else x for x in found]


def integer_dot(
    total: int, a: int, b: int, *, bits: int = 8, signed: tuple[bool, bool], saturate: bool = False
) -> int:
    """One dword of vpdpbusd, vpdpwssd (16 bits) and tdpb**d, and of their saturating forms."""
    products = zip(integers(a, bits, signed[0]), integers(b, bits, signed[1]), strict=True)
    exact = integers(total, 32, True)[0] + sum(x * y for x, y in products)
    if saturate:
        exact = max(-(1 << 31), min(exact, (1 << 31) - 1))
    return exact % (1 << 32)
