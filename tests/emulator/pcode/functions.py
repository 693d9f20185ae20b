"""The functions that the guide's pseudo-code calls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.emulator.pcode.numbers import (
    MANTISSA,
    Value,
    convert,
    exponent_of,
    floating,
    fma,
    signed,
    unsigned,
)


def _to_integer(kind: str, width: int) -> Callable[[Value], Value]:
    low, high = (
        (-(1 << (width - 1)), (1 << (width - 1)) - 1) if kind == "i" else (0, (1 << width) - 1)
    )

    def convert_to_integer(value: Value) -> Value:
        number = value.number
        if np.isnan(number):
            return Value(kind, width, 0)
        whole = (high if number > 0 else low) if np.isinf(number) else int(number)
        return Value(kind, width, min(max(whole, low), high) & ((1 << width) - 1))

    return convert_to_integer


def _signext_from_bit(value: Value, count: Value) -> Value:
    n = int(count.number)
    if n == 0 or n >= value.width:
        return value if n else Value(value.kind, value.width, 0)
    bits = value.bits & ((1 << n) - 1)
    if bits >> (n - 1):
        bits -= 1 << n
    return Value("i", value.width, bits & ((1 << value.width) - 1))


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "fma": fma,
    "trunc": lambda v: floating(np.trunc(v.number), v.width),
    "floor": lambda v: floating(np.floor(v.number), v.width),
    "sqrt": lambda v: floating(np.sqrt(v.number), v.width),
    "isNAN": lambda v: unsigned(v.nan(), 1),
    "isSignalNAN": lambda v: unsigned(v.nan() and not v.quiet(), 1),
    "isQuietNAN": lambda v: unsigned(v.nan() and v.quiet(), 1),
    "cvtToQuietNAN": lambda v: Value("f", v.width, v.bits | 1 << (MANTISSA[v.width] - 1)),
    "exponent": lambda v: signed(exponent_of(v)),
    "sign": lambda v: unsigned(v.bits >> (v.width - 1), 1),
    "abs": lambda v: Value(v.kind, v.width, v.bits & ~(1 << (v.width - 1))),
    "signext": lambda v: Value("i", 64, v.number & ((1 << 64) - 1)),
    "signext_from_bit": _signext_from_bit,
    "f32_to_i32": _to_integer("i", 32),
    "f32_to_u32": _to_integer("u", 32),
    "f64_to_i32": _to_integer("i", 32),
    "f64_to_u32": _to_integer("u", 32),
    "f16_to_i16": _to_integer("i", 16),
    "f16_to_u16": _to_integer("u", 16),
    "i32_to_f32": lambda v: floating(v.number, 32),
    "u32_to_f32": lambda v: floating(v.number, 32),
    "i32_to_f64": lambda v: floating(v.number, 64),
    "u32_to_f64": lambda v: floating(v.number, 64),
    "i16_to_f16": lambda v: floating(v.number, 16),
    "u16_to_f16": lambda v: floating(v.number, 16),
    "f16_to_f32": lambda v: convert(v, 32),
    "f32_to_f16": lambda v: convert(v, 16),
    "f32_to_f64": lambda v: convert(v, 64),
    "f64_to_f32": lambda v: convert(v, 32),
    "u32_to_u16": lambda v: unsigned(min(v.bits, 65535), 16),
    "i32_to_i16": lambda v: signed(min(max(v.number, -32768), 32767), 16),
    **{
        f"{k}{n}_to_{k}32": lambda v: Value(v.kind, 32, v.number & 0xFFFFFFFF)
        for k in "iu"
        for n in (4, 8, 16)
    },
}
