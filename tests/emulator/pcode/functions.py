"""The functions and operators of the guide's pseudo-code."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tests.emulator.pcode.numbers import (
    MANTISSA,
    Value,
    convert,
    exponent_of,
    floating,
    fma,
    round_fraction,
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
    **{
        f"f{width}_to_{kind}{to}": _to_integer(kind, to)
        for width, to in ((16, 16), (32, 32), (64, 32))
        for kind in "iu"
    },
    **{
        f"{kind}{width}_to_f{to}": lambda v, to=to: floating(v.number, to)
        for width, to in ((32, 32), (32, 64), (16, 16))
        for kind in "iu"
    },
    **{
        f"f{width}_to_f{to}": lambda v, to=to: convert(v, to)
        for width, to in ((16, 32), (32, 16), (32, 64), (64, 32))
    },
    "u32_to_u16": lambda v: unsigned(min(v.bits, 65535), 16),
    "i32_to_i16": lambda v: signed(min(max(v.number, -32768), 32767), 16),
    **{
        f"{k}{n}_to_{k}32": lambda v: Value(v.kind, 32, v.number & 0xFFFFFFFF)
        for k in "iu"
        for n in (4, 8, 16)
    },
}


# --- operators ------------------------------------------------------------------------------------


_Operators = dict[str, Callable[[Any, Any], Any]]
_COMPARED: _Operators = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le,
    ">=": operator.ge,
}  # fmt: skip
_REAL: _Operators = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_WHOLE: _Operators = _REAL | {
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift,
    ">>": operator.rshift, "**": operator.pow,
}  # fmt: skip


def arithmetic(symbol: str, a: Value, b: Value) -> Value:
    if symbol == "||":
        return unsigned(bool(a.bits or b.bits), 1)
    if symbol == "&&":
        return unsigned(bool(a.bits and b.bits), 1)
    x, y = a.number, b.number
    if symbol in ("==", "!=", "<>", "<", ">", "<=", ">="):
        return unsigned(_compare(symbol, a, b, x, y), 1)
    if "f" in (a.kind, b.kind):
        return _float_arithmetic(symbol, a, b)
    width = a.width if symbol in ("<<", ">>") else max(a.width, b.width)
    kind = a.kind if symbol in ("<<", ">>") or a.kind == b.kind else "u"
    result = _WHOLE[symbol](x, y)
    return Value(kind, width, result & ((1 << width) - 1))


def _compare(symbol: str, a: Value, b: Value, x: Any, y: Any) -> bool:
    if b.kind == "zero":
        return a.bits == b.bits << (a.width - 1)
    if symbol == "<>":
        return bool(x < y or x > y)
    return bool(_COMPARED[symbol](x, y))


def _float_arithmetic(symbol: str, a: Value, b: Value) -> Value:
    width = max(v.width for v in (a, b) if v.kind == "f")
    if symbol == "**":  # 2.0F ** n: n may be any integer
        exponent = max(min(int(b.number), 4000), -4000)
        return Value("power", width, exponent & 0xFFFFFFFF)
    if symbol == "-" or "zero" in (a.kind, b.kind):
        a, b = (floating(-0.0 if v.bits else 0.0, width) if v.kind == "zero" else v for v in (a, b))
    if "power" in (a.kind, b.kind):
        value, power = (b, a) if a.kind == "power" else (a, b)
        number, exponent = value.number, power.bits - ((power.bits >> 31) << 32)
        if not np.isfinite(number):
            return value
        exact = Fraction(float(number)) * Fraction(2) ** exponent
        return round_fraction(exact, value.width, bool(value.bits >> (value.width - 1)))
    x, y = (convert(v, width).number if v.kind == "f" else v.number for v in (a, b))
    with np.errstate(all="ignore"):
        result = _REAL[symbol](x, y)
    return floating(result, width)
