"""Executes the pseudo-code of AMD's ISA guide, for one lane: what an instruction should compute.

The text comes from tinygrad's wheel (`PCODE`, machine-extracted from the guides); this interpreter
and the emulator's handlers have nothing in common. Numbers are kept as bits with a type:
("u" | "i" | "f" | "bf", width). Float arithmetic is numpy's, fma exact through Fraction.
"""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

_TOKEN = re.compile(
    r"\s*(?:(?P<sized>\d+'(?:0x[0-9a-fA-F]+|\d+(?:\.\d+)?)[UILF]*)"
    r"|(?P<cast>\d+'(?:BF|[UIFB])(?=\())"
    r"|(?P<type>\d+'(?:BF|[UIFB]))"
    r"|(?P<number>0x[0-9a-fA-F]+[UL]*|\d+\.\d+F?|\d+[UL]*F?)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<op>\+:|\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||\+=|-=|[-+*/%&|^~!<>=?:()\[\]{},.;]))"
)
_FORMATS: dict[int, tuple[Any, Any]] = {
    16: (np.float16, np.uint16),
    32: (np.float32, np.uint32),
    64: (np.float64, np.uint64),
}
_MANTISSA = {16: 10, 32: 23, 64: 52}
_BIAS = {16: 15, 32: 127, 64: 1023}


class NotExecutable(Exception):
    """The pseudo-code calls what the guide does not define."""


class Value(NamedTuple):
    kind: str  # u, i, f, bf
    width: int
    bits: int

    @property
    def number(self) -> Any:
        """A Python int, or numpy's float of this width."""
        if self.kind == "f":
            float_type, int_type = _FORMATS[self.width]
            return np.array([self.bits], int_type).view(float_type)[0]
        if self.kind == "bf":
            return np.array([self.bits << 16], np.uint32).view(np.float32)[0]
        if self.kind == "i" and self.bits >> (self.width - 1):
            return self.bits - (1 << self.width)
        return self.bits

    def nan(self) -> bool:
        m = _MANTISSA[self.width]
        magnitude = self.bits & ((1 << (self.width - 1)) - 1)
        return magnitude > ((1 << (self.width - 1)) - (1 << m))

    def quiet(self) -> bool:
        return bool(self.bits >> (_MANTISSA[self.width] - 1) & 1)


def unsigned(bits: int, width: int = 32) -> Value:
    return Value("u", width, bits & ((1 << width) - 1))


def signed(bits: int, width: int = 32) -> Value:
    return Value("i", width, bits & ((1 << width) - 1))


def floating(number: Any, width: int) -> Value:
    float_type, int_type = _FORMATS[width]
    with np.errstate(all="ignore"):
        return Value("f", width, int(np.array([number]).astype(float_type).view(int_type)[0]))


def convert(value: Value, width: int) -> Value:
    """Between float widths; a NaN keeps its upper payload, and if it widens whether it signals."""
    if value.kind == "bf":
        value = Value("f", 32, value.bits << 16)
    if value.width == width:
        return value
    if value.nan():
        shift = _MANTISSA[width] - _MANTISSA[value.width]
        payload = value.bits & ((1 << _MANTISSA[value.width]) - 1)
        if shift >= 0:
            payload <<= shift
        else:  # narrowing makes it quiet
            payload = payload >> -shift | 1 << (_MANTISSA[width] - 1)
        sign = value.bits >> (value.width - 1) << (width - 1)
        top = (1 << (width - 1)) - (1 << _MANTISSA[width])
        return Value("f", width, sign | top | payload)
    return floating(value.number, width)


def round_fraction(exact: Fraction, width: int, negative_zero: bool = False) -> Value:
    """To nearest even, of an exact rational number."""
    mantissa, bias = _MANTISSA[width], _BIAS[width]
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


@dataclass
class State:
    """What the pseudo-code of one lane reads and writes."""

    sources: dict[str, int] = field(default_factory=dict)  # S0, S1, S2, SIMM16, SIMM32
    d0: int = 0
    d1: int = 0
    scc: int = 0
    vcc: int = 0
    exec: int = (1 << 64) - 1
    lane: int = 0
    ieee: bool = True
    op_sel: int = 0
    sdwa_src0: int = 0


class _Break(Exception):
    pass


class _Return(Exception):
    def __init__(self, value: Value) -> None:
        self.value = value


_AHEAD = 2
"""How far the interpreter peeks past the token where it is."""


@lru_cache(maxsize=4096)
def tokens_of(text: str) -> tuple[tuple[str, str], ...]:
    """As many empty tokens at the end as the interpreter may look past it."""
    text = re.sub(r"//[^\n]*", "", text)
    tokens, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise NotExecutable(f"no token at {text[at : at + 20]!r}")
        tokens.append((str(match.lastgroup), match.group(str(match.lastgroup))))
        at = match.end()
    return (*tokens, *[("", "")] * _AHEAD)


_LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!=", "<>"),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
    ("**",),
)
_PREFIXES = ("!", "~", "+", "-")
_LEVEL_OF = {symbol: level for level, symbols in enumerate(_LEVELS) for symbol in symbols}
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
    "/": operator.truediv,
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


class Interpreter:
    """One run over the tokens of one instruction's pseudo-code."""

    def __init__(self, text: str, state: State, table: dict[str, str]) -> None:
        self.tokens, self.state, self.table = tokens_of(text), state, table
        self.at = 0
        self.variables: dict[str, Any] = {}
        self.lambdas: dict[str, tuple[list[str], int]] = {}

    # ---- tokens ----

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

    # ---- statements ----

    def run(self) -> State:
        self.block(set())
        return self.state

    def block(self, ends: set[str], live: bool = True) -> None:
        ends = ends | {""}
        while self.peek() not in ends:
            if not self.accept(";"):
                self.statement(live)

    def statement(self, live: bool) -> None:
        word = self.peek()
        if word == "if":
            self.conditional(live)
        elif word == "for":
            self.loop(live)
        elif word == "declare":
            self.declare()
        elif word == "break":
            self.take()
            if live:
                raise _Break
        elif word == "return":
            self.take()
            value = self.expression(live)
            if live:
                raise _Return(value)
        elif self.peek(1) == "=" and self.peek(2) == "lambda":
            self.define_lambda()
        else:
            self.assignment(live)

    def conditional(self, live: bool) -> None:
        self.take("if")
        done = False
        while True:
            chosen = bool(self.expression(live and not done).bits) and not done
            self.take("then")
            self.block({"elsif", "else", "endif"}, live and chosen)
            done = done or chosen
            if self.accept("elsif"):
                continue
            if self.accept("else"):
                self.block({"endif"}, live and not done)
            self.take("endif")
            return

    def loop(self, live: bool) -> None:
        self.take("for")
        name = self.take()
        self.take("in")
        first = self.expression(live).number
        self.take(":")
        last = self.expression(live).number
        self.take("do")
        start = self.at
        if not live:
            self.block({"endfor"}, False)
        stopped = False
        for i in range(first, last + 1) if live else ():
            self.at = start
            self.variables[name] = signed(i)
            try:
                self.block({"endfor"}, not stopped)
            except _Break:
                stopped = True
                break
        if stopped:
            self.at = start
            self.block({"endfor"}, False)
        self.take("endfor")

    def declare(self) -> None:
        self.take("declare")
        name = self.take()
        self.take(":")
        width, kind = self.take().split("'")
        self.variables[name] = Value(kind.lower().replace("b", "u"), int(width), 0)
        if self.accept("["):
            count = self.expression(True).number
            self.take("]")
            self.variables[name] = [self.variables[name]] * count

    def define_lambda(self) -> None:
        name = self.take()
        self.take("=")
        self.take("lambda")
        self.take("(")
        parameters = [self.take()]
        while self.accept(","):
            parameters.append(self.take())
        self.take(")")
        self.take("(")
        self.lambdas[name] = (parameters, self.at)
        depth = 1
        while depth:
            depth += {"(": 1, ")": -1}.get(self.take(), 0)

    def assignment(self, live: bool) -> None:
        targets = []
        while True:
            targets.append(self.target(live))
            symbol = self.take()
            if symbol in ("+=", "-="):
                read, write = targets[0]
                value = self.arithmetic(symbol[0], read(), self.expression(live), live)
                if live:
                    write(value)
                return
            if symbol != "=":
                raise NotExecutable(f"assignment by {symbol!r}")
            # another target follows if there is one more "=" in the statement
            ends = (";", "if", "elsif", "else", "endif", "endfor", ")", "")
            end = self.at
            while self.tokens[end][1] not in (*ends, "="):
                end += 1
            if self.tokens[end][1] in ends:
                break
        value = self.expression(live)
        if live:
            for _, write in targets:
                write(value)

    # ---- targets ----

    def target(self, live: bool) -> tuple[Callable[[], Value], Callable[[Value], None]]:
        if self.accept("{"):
            parts = [self.target(live)]
            while self.accept(","):
                parts.append(self.target(live))
            self.take("}")
            widths = [read().width for read, _ in parts]

            def write_parts(value: Value) -> None:
                at = sum(widths)
                for (_, write), width in zip(parts, widths, strict=True):
                    at -= width
                    write(unsigned(value.bits >> at, width))

            return (lambda: unsigned(0)), write_parts
        name = self.take()
        if name == "VGPR":  # VGPR[laneId][VDST.u32][...]: this lane's destination
            for _ in range(2):
                self.take("[")
                self.expression(live)
                self.take("]")
            name = "D0"
        low, width, kind = 0, 0, ""
        index: int | None = None
        while self.peek() in (".", "["):
            if self.accept("."):
                kind, width = self.type_suffix(self.take())
                continue
            self.take("[")
            first = self.expression(live)
            if self.accept(":"):
                last = self.expression(live)
                low, width = low + last.number, first.number - last.number + 1
                if width < 1:  # [31 : 0] = S[0 : 31]: handled by reading reversed
                    raise NotExecutable("a reversed target")
            elif isinstance(self.variables.get(name), list):
                index = first.number
            else:
                low, width = low + first.number, 1
            kind = kind or "u"
            self.take("]")
        return self.storage(name, low, width, kind, index)

    def storage(
        self, name: str, low: int, width: int, kind: str, index: int | None
    ) -> tuple[Callable[[], Value], Callable[[Value], None]]:
        state = self.state
        attribute = {"D0": "d0", "D": "d0", "D1": "d1", "SCC": "scc", "VCC": "vcc", "EXEC": "exec"}

        def whole() -> int:
            if name in attribute:
                return int(getattr(state, attribute[name]))
            old = self.variables.get(name)
            old = old[index] if index is not None and old is not None else old
            return old.bits if isinstance(old, Value) else 0

        def read() -> Value:
            return Value(kind or "u", width or 64, whole() >> low & ((1 << (width or 64)) - 1))

        def write(value: Value) -> None:
            size = width or value.width
            if width and kind in ("f", "bf") and value.kind == "f" and value.width != width:
                value = convert(value, width)
            if name in attribute:
                mask = ((1 << size) - 1) << low
                bits = (whole() & ~mask) | (value.bits << low & mask)
                if value.kind == "i" and value.width < size:  # sign-extends
                    bits = (whole() & ~mask) | (value.number << low & mask)
                setattr(state, attribute[name], bits)
                return
            if index is not None:
                items = list(self.variables[name])
                items[index] = value
                self.variables[name] = items
                return
            if not low and not width:
                declared = self.variables.get(name)
                if isinstance(declared, Value) and name not in self.lambdas and value.kind != "f":
                    value = Value(value.kind, max(value.width, 1), value.bits)
                self.variables[name] = value
                return
            mask = ((1 << size) - 1) << low
            old = self.variables.get(name)
            total = max(old.width if isinstance(old, Value) else 0, low + size)
            new_kind = kind if not low and size == total else "u"
            bits = (whole() & ~mask) | (value.bits << low & mask)
            self.variables[name] = Value(new_kind, total, bits)

        return read, write

    # ---- expressions, by precedence ----

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
        while (found := _LEVEL_OF.get(self.tokens[self.at][1], -1)) >= level:
            symbol = self.take()
            left = self.arithmetic(symbol, left, self.binary(found + 1, live), live)
        return left

    def arithmetic(self, symbol: str, a: Value, b: Value, live: bool = True) -> Value:
        if not live:
            return a
        if symbol == "||":
            return unsigned(bool(a.bits or b.bits), 1)
        if symbol == "&&":
            return unsigned(bool(a.bits and b.bits), 1)
        x, y = a.number, b.number
        if symbol in ("==", "!=", "<>", "<", ">", "<=", ">="):
            return unsigned(self.compare(symbol, a, b, x, y), 1)
        if a.kind in ("f", "bf") or b.kind in ("f", "bf"):
            return self.float_arithmetic(symbol, a, b)
        width = a.width if symbol in ("<<", ">>") else max(a.width, b.width)
        kind = a.kind if symbol in ("<<", ">>") or a.kind == b.kind else "u"
        result = _WHOLE[symbol](x, y)
        return Value(kind, width, result & ((1 << width) - 1))

    @staticmethod
    def compare(symbol: str, a: Value, b: Value, x: Any, y: Any) -> bool:
        if b.kind == "denormal":  # x == DENORM
            return bool(x != 0 and exponent_of(a) == 0)
        if b.kind == "zero":
            return a.bits == b.bits << (a.width - 1)
        if symbol == "<>":
            return bool(x < y or x > y)
        return bool(_COMPARED[symbol](x, y))

    @staticmethod
    def float_arithmetic(symbol: str, a: Value, b: Value) -> Value:
        width = max(v.width for v in (a, b) if v.kind == "f")
        if symbol == "**":  # 2.0F ** n: n may be any integer
            exponent = max(min(int(b.number), 4000), -4000)
            return Value("power", width, exponent & 0xFFFFFFFF)
        if symbol == "-" or "zero" in (a.kind, b.kind):
            a, b = (
                floating(-0.0 if v.bits else 0.0, width) if v.kind == "zero" else v for v in (a, b)
            )
        if "power" in (a.kind, b.kind):
            value, power = (b, a) if a.kind == "power" else (a, b)
            number, exponent = value.number, power.bits - ((power.bits >> 31) << 32)
            if not np.isfinite(number):
                return value
            exact = Fraction(float(number)) * Fraction(2) ** exponent
            return round_fraction(exact, value.width, bool(value.bits >> (value.width - 1)))
        x, y = (convert(v, width).number if v.kind in ("f", "bf") else v.number for v in (a, b))
        with np.errstate(all="ignore"):
            result = _REAL[symbol](x, y)
        return floating(result, width)

    def unary(self, live: bool) -> Value:
        if self.tokens[self.at][1] not in _PREFIXES:
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

    # ---- calls ----

    def call(self, name: str, live: bool) -> Value:
        self.take("(")
        arguments = [self.expression(live)]
        while self.accept(","):
            arguments.append(self.expression(live))
        self.take(")")
        if not live:
            return unsigned(0)
        if name in self.lambdas:
            return self.call_lambda(name, arguments)
        if name.startswith("v_"):
            return self.call_instruction(name, arguments)
        if name not in _FUNCTIONS:
            raise NotExecutable(f"the function {name!r}")
        return _FUNCTIONS[name](*arguments)

    def call_lambda(self, name: str, arguments: list[Value]) -> Value:
        parameters, start = self.lambdas[name]
        back, outer = self.at, dict(self.variables)
        self.variables.update(zip(parameters, arguments, strict=True))
        self.at = start
        try:
            if self.peek() in ("if", "declare"):
                self.block({")"})
                raise NotExecutable(f"{name} returns nothing")
            return self.expression(True)
        except _Return as returned:
            return returned.value
        finally:
            self.at, self.variables = back, outer

    def call_instruction(self, name: str, arguments: list[Value]) -> Value:
        if name in ("v_minimum_f32", "v_maximum_f32", "v_minimum3_f16", "v_maximum3_f16"):
            result = arguments[0]
            for argument in arguments[1:]:
                result = minimum_2019(result, argument, "max" in name)
            return result
        if name not in self.table:
            raise NotExecutable(f"the instruction {name!r}")
        inner = State(ieee=self.state.ieee)
        inner.sources = {f"S{i}": a.bits for i, a in enumerate(arguments)}
        Interpreter(self.table[name], inner, self.table).run()
        kind, width = self.type_suffix(name.rsplit("_", 1)[1].replace("u8", "u32"))
        return Value(kind, width, inner.d0 & ((1 << width) - 1))


def minimum_2019(a: Value, b: Value, maximum: bool) -> Value:
    """minimum and maximum of IEEE 754-2019: a NaN wins, -0 < +0."""
    for v in (a, b):
        if v.nan():
            return Value("f", v.width, v.bits | 1 << (_MANTISSA[v.width] - 1))
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
        if value.kind in ("f", "bf"):
            return convert(value, width)
        return Value("f", width, value.bits) if from_bits else floating(value.number, width)
    bits = int(value.number) if value.kind == "i" else value.bits
    return Value("u" if kind == "b" else kind, width, bits & ((1 << width) - 1))


def exponent_of(value: Value) -> int:
    m = _MANTISSA[value.width]
    return value.bits >> m & ((1 << (value.width - 1 - m)) - 1)


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


def _truncated(value: Value) -> Value:
    return floating(np.trunc(value.number), value.width)


def _signext_from_bit(value: Value, count: Value) -> Value:
    n = int(count.number)
    if n == 0 or n >= value.width:
        return value if n else Value(value.kind, value.width, 0)
    bits = value.bits & ((1 << n) - 1)
    if bits >> (n - 1):
        bits -= 1 << n
    return Value("i", value.width, bits & ((1 << value.width) - 1))


def _mantissa(value: Value) -> Value:
    return floating(math.frexp(float(value.number))[0], value.width)


def _exponent(value: Value) -> Value:
    """The biased exponent; of a denormal what makes `mantissa * 2^exponent` hold, as frexp does."""
    return signed(exponent_of(value))


def _ldexp(value: Value, power: Value) -> Value:
    if not np.isfinite(value.number):
        return value
    exact = Fraction(float(value.number)) * Fraction(2) ** int(power.number)
    return round_fraction(exact, value.width, bool(value.bits >> (value.width - 1)))


_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "fma": fma,
    "trunc": _truncated,
    "floor": lambda v: floating(np.floor(v.number), v.width),
    "fract": lambda v: floating(v.number - np.floor(v.number), v.width),
    "sqrt": lambda v: floating(np.sqrt(v.number), v.width),
    "isEven": lambda v: unsigned(bool(np.fmod(v.number, 2) == 0), 1),
    "isNAN": lambda v: unsigned(v.nan(), 1),
    "isSignalNAN": lambda v: unsigned(v.nan() and not v.quiet(), 1),
    "isQuietNAN": lambda v: unsigned(v.nan() and v.quiet(), 1),
    "cvtToQuietNAN": lambda v: Value("f", v.width, v.bits | 1 << (_MANTISSA[v.width] - 1)),
    "exponent": _exponent,
    "mantissa": _mantissa,
    "sign": lambda v: unsigned(v.bits >> (v.width - 1), 1),
    "abs": lambda v: Value(v.kind, v.width, v.bits & ~(1 << (v.width - 1))),
    "signext": lambda v: Value("i", 64, v.number & ((1 << 64) - 1)),
    "signext_from_bit": _signext_from_bit,
    "ldexp": _ldexp,
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
    "bf16_to_f32": lambda v: Value("f", 32, v.bits << 16),
    "u32_to_u16": lambda v: unsigned(min(v.bits, 65535), 16),
    "i32_to_i16": lambda v: signed(min(max(v.number, -32768), 32767), 16),
    **{
        f"{k}{n}_to_{k}32": lambda v: Value(v.kind, 32, v.number & 0xFFFFFFFF)
        for k in "iu"
        for n in (4, 8, 16)
    },
}


def float64_bits(number: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", number))[0])


def execute(text: str, state: State, table: dict[str, str]) -> State:
    """Runs one lane's pseudo-code on `state`, which it changes; `table`: code by mnemonic."""
    return Interpreter(text, state, table).run()
