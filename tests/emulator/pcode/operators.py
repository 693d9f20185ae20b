"""The operators of the pseudo-code, by precedence, and what they compute."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tests.emulator.pcode.numbers import (
    Value,
    convert,
    floating,
    round_fraction,
    unsigned,
)

LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!=", "<>"),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*",),
    ("**",),
)
_Operators = dict[str, Callable[[Any, Any], Any]]
_COMPARED: _Operators = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_REAL: _Operators = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_WHOLE: _Operators = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "**": operator.pow,
}


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
