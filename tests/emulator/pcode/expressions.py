"""Expressions of the pseudo-code."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from functools import cache
from typing import Any

from tests.emulator.pcode.numbers import (
    NotExecutable,
    Value,
    cast,
    convert,
    floating,
    literal,
    unsigned,
)
from tests.emulator.pcode.operators import LEVEL_OF, PREFIXES, arithmetic
from tests.emulator.pcode.state import State
from tests.emulator.pcode.tokens import tokens_of

_CONSTANTS = {
    "INF": floating(math.inf, 64),
    "NAN": floating(math.nan, 64),
    "PI": floating(math.pi, 64),
    "DENORM": Value("denormal", 64, 0),
    "UNDERFLOW_F32": floating(0.0, 32),
    "OVERFLOW_F32": floating(math.inf, 32),
    "UNDERFLOW_F64": floating(0.0, 64),
    "OVERFLOW_F64": floating(math.inf, 64),
    "BYTE1": unsigned(1, 3),
    "BYTE2": unsigned(2, 3),
    "BYTE3": unsigned(3, 3),
    "WORD1": unsigned(1, 2),
    "ROUND_MODE": unsigned(0),
    "ROUND_NEAREST_EVEN": unsigned(0),
    "ROUND_TOWARD_ZERO": unsigned(3),
}


_OF_STATE = {  # name: attribute of State, width
    "D0": ("d0", 64),
    "SCC": ("scc", 1),
    "VCC": ("vcc", 64),
    "EXEC": ("exec", 64),
    "laneId": ("lane", 32),
    "OPSEL": ("op_sel", 32),
    "SDWA_SRC0_SEL": ("sdwa_src0", 3),
}


class Expressions(ABC):
    """Reads an instruction's tokens from left to right; computes only what is `live`."""

    def __init__(self, text: str, state: State, table: dict[str, str]) -> None:
        self.tokens, self.state, self.table = tokens_of(text), state, table
        self.at = 0
        self.variables: dict[str, Any] = {}
        self.lambdas: dict[str, tuple[list[str], int]] = {}

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead][1]

    def take(self, expected: str = "") -> str:
        text = self.tokens[self.at][1]
        if expected and text != expected:
            raise NotExecutable(f"expected {expected!r}, found {text!r}")
        self.at += 1
        return text

    def accept(self, text: str) -> bool:
        if self.tokens[self.at][1] == text:
            self.at += 1
            return True
        return False

    def expression(self, live: bool) -> Value:
        condition = self.binary(0, live)
        if not self.accept("?"):
            return condition
        first = self.expression(live and bool(condition.bits))
        self.take(":")
        second = self.expression(live and not condition.bits)
        return first if condition.bits else second

    def binary(self, level: int, live: bool) -> Value:
        """An expression of operators that bind at least as tightly as `level`."""
        left = self.unary(live)
        while (found := LEVEL_OF.get(self.tokens[self.at][1], -1)) >= level:
            symbol = self.take()
            left = arithmetic(symbol, left, self.binary(found + 1, live), live)
        return left

    def unary(self, live: bool) -> Value:
        if self.tokens[self.at][1] not in PREFIXES:
            return self.suffixed(self.primary(live), live)
        if self.accept("!"):
            return unsigned(not self.unary(live).bits, 1)
        if self.accept("~"):
            value = self.unary(live)
            return Value(value.kind, value.width, ~value.bits & ((1 << value.width) - 1))
        if self.peek() in ("+", "-") and re.fullmatch(r"0\.0F?", self.peek(1)):
            sign = self.take() == "-"  # comparisons with +0.0 and -0.0 mean the sign
            self.take()
            return Value("zero", 64, sign)
        if self.accept("+"):
            return self.unary(live)
        self.take("-")
        value = self.unary(live)
        if value.kind == "f":
            return Value("f", value.width, value.bits ^ 1 << (value.width - 1))
        return Value(value.kind, value.width, -value.bits & ((1 << value.width) - 1))

    def primary(self, live: bool) -> Any:
        group, text = self.tokens[self.at]
        self.at += 1
        if group == "number":
            return literal(text)
        if group == "sized":
            width, digits = text.split("'")
            if "." in digits:
                return floating(float(digits.rstrip("F")), int(width))
            kind = "u" if digits.endswith("U") else "i"
            return Value(kind, int(width), int(digits.rstrip("UIL"), 0) & ((1 << int(width)) - 1))
        if group == "cast":
            width, kind = text.split("'")
            hexadecimal = self.peek(1).startswith("0x") or self.peek(1) == "{"
            self.take("(")
            value = self.expression(live)
            self.take(")")
            return cast(value, kind.lower(), int(width), hexadecimal)
        if text == "(":
            value = self.expression(live)
            self.take(")")
            return value
        if text == "{":
            parts = [self.expression(live)]
            while self.accept(","):
                parts.append(self.expression(live))
            self.take("}")
            joined, all_bits = 0, 0
            for part in parts:
                joined, all_bits = joined << part.width | part.bits, all_bits + part.width
            return unsigned(joined, all_bits)
        if self.peek() == "(":
            return self.call(text, live)
        return self.name(text)

    def name(self, text: str) -> Any:
        state = self.state
        if text in self.variables:
            return self.variables[text]
        if text in state.sources:
            return unsigned(state.sources[text], 64)
        if text == "WAVE_MODE":
            self.take(".")
            if self.take() != "IEEE":
                raise NotExecutable("a field of MODE but IEEE")
            return unsigned(state.ieee, 1)
        if text in _OF_STATE:
            attribute, width = _OF_STATE[text]
            return unsigned(getattr(state, attribute), width)
        if text not in _CONSTANTS:
            raise NotExecutable(f"the name {text!r}")
        return _CONSTANTS[text]

    @staticmethod
    @cache
    def type_suffix(text: str) -> tuple[str, int]:
        match = re.fullmatch(r"(bf|fp|[uifb])(\d+)", text)
        if not match:
            raise NotExecutable(f"the type {text!r}")
        kind = {"b": "u", "fp": "fp"}.get(match[1], match[1])
        return ("bf8", 8) if text == "bf8" else (kind, int(match[2]))

    def suffixed(self, value: Any, live: bool) -> Value:
        while self.peek() in (".", "["):
            if self.accept("."):
                kind, width = self.type_suffix(self.take())
                if value.kind == "denormal":
                    continue
                if value.kind == "f" and value.width != width and kind == "f":
                    value = convert(value, width)  # INF.f32
                    continue
                bits = value.number if value.kind == "i" else value.bits
                value = Value(kind, width, bits & ((1 << width) - 1))
                continue
            self.take("[")
            first = self.expression(live)
            if self.accept(":"):
                value = self.bit_range(value, first.number, self.expression(live).number)
            elif self.accept("+:"):
                width = self.expression(live).number
                value = unsigned(value.bits >> first.number, width)
            elif isinstance(value, list):
                value = value[first.number] if live else value[0]
            else:
                value = unsigned(value.bits >> first.number, 1)
            self.take("]")
        return value

    @staticmethod
    def bit_range(value: Value, first: int, last: int) -> Value:
        if first >= last:
            return unsigned(value.bits >> last, first - last + 1)
        width = last - first + 1  # [0 : 31]: reversed
        bits = value.bits >> first & ((1 << width) - 1)
        return unsigned(int(f"{bits:0{width}b}"[::-1], 2), width)

    @abstractmethod
    def call(self, name: str, live: bool) -> Value:
        """Of a function, a lambda or another instruction; a lambda's body may hold statements."""
