"""Executes the pseudo-code of AMD's ISA guide, for one lane: what an instruction should compute.

The text comes from tinygrad's wheel (`PCODE`, machine-extracted from the guides); this interpreter
and the emulator's handlers have nothing in common.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

from lark import Token, Tree

from tests.emulator.pcode.functions import FUNCTIONS, arithmetic
from tests.emulator.pcode.grammar import parsed
from tests.emulator.pcode.numbers import (
    NotExecutable,
    Value,
    cast,
    convert,
    floating,
    literal,
    minimum_2019,
    signed,
    unsigned,
)

Node: TypeAlias = "Token | Tree[Token]"

REGISTERS = {  # attribute of State, width
    "D0": ("d0", 64), "D1": ("d1", 64), "SCC": ("scc", 1), "VCC": ("vcc", 64),
    "EXEC": ("exec", 64), "laneId": ("lane", 32), "OPSEL": ("op_sel", 32),
}  # fmt: skip


@dataclass
class State:
    """Values that the pseudo-code of one lane reads and writes."""

    sources: dict[str, int] = field(default_factory=dict)  # S0, S1, S2, SIMM16, SIMM32
    d0: int = 0
    d1: int = 0
    scc: int = 0
    vcc: int = 0
    exec: int = (1 << 64) - 1
    lane: int = 0
    ieee: bool = True
    op_sel: int = 0


@cache
def type_of(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"([uifb])(\d+)", text)
    if not match:
        raise NotExecutable(f"the type {text!r}")
    return "u" if match[1] == "b" else match[1], int(match[2])


class Break(Exception):
    """A loop ends."""


class Return(Exception):
    """A lambda returns; the argument is its value."""


class Interpreter:
    """One run of one instruction's pseudo-code: a method for each rule of the grammar."""

    def __init__(self, state: State, table: dict[str, str]) -> None:
        self.state, self.table = state, table
        self.variables: dict[str, Any] = {}
        self.functions: dict[str, Tree[Token]] = {}

    def run(self, node: Node) -> Any:
        if isinstance(node, Token):
            return self.name(str(node)) if node.type == "NAME" else number(str(node))
        return getattr(self, node.data)(*node.children)

    # ---- statements ----

    def block(self, *statements: Node) -> None:
        for statement in statements:
            self.run(statement)

    def conditional(self, *parts: Node | None) -> None:
        *branches, otherwise = parts
        for condition, body in zip(branches[::2], branches[1::2], strict=True):
            assert condition is not None
            if self.run(condition).bits:
                otherwise = body
                break
        if otherwise is not None:
            self.run(otherwise)

    def loop(self, name: Token, first: Node, last: Node, body: Node) -> None:
        for i in range(self.run(first).number, self.run(last).number + 1):
            self.variables[name] = signed(i)
            try:
                self.run(body)
            except Break:
                return

    def declaration(self, name: Token, of: Token, count: Node | None) -> None:
        width, kind = of.split("'")
        value = Value(kind.lower().replace("b", "u"), int(width), 0)
        self.variables[name] = [value] * self.run(count).number if count else value

    def stop(self) -> None:
        raise Break

    def give(self, value: Node) -> None:
        raise Return(self.run(value))

    def assignment(self, *parts: Node) -> None:
        *targets, source = parts
        if isinstance(source, Tree) and source.data == "function":
            self.functions[str(targets[0])] = source
            return
        places = [self.place(target) for target in targets]
        value = self.run(source)
        for _, write in places:
            write(value)

    def change(self, target: Node, symbol: Token, amount: Node) -> None:
        read, write = self.place(target)
        write(arithmetic(symbol[0], read(), self.run(amount)))

    # ---- places ----

    def place(self, target: Node) -> tuple[Callable[[], Value], Callable[[Value], None]]:
        """The reader and the writer of the left side of an assignment."""
        if isinstance(target, Tree) and target.data == "concatenation":
            return self.places(target)
        name, *suffixes = [target] if isinstance(target, Token) else target.children
        low, width, kind = 0, 0, ""
        index: int | None = None
        for suffix in suffixes:
            if suffix.data == "typed":
                kind, width = type_of(suffix.children[0])
                continue
            first, *last = (self.run(child).number for child in suffix.children)
            if last:
                low, width = low + last[0], first - last[0] + 1
            elif isinstance(self.variables.get(name), list):
                index = first
            else:
                low, width = low + first, 1
            kind = kind or "u"
        return self.storage(str(name), low, width, kind, index)

    def places(self, target: Tree[Token]) -> tuple[Callable[[], Value], Callable[[Value], None]]:
        parts = [self.place(part) for part in target.children]
        widths = [read().width for read, _ in parts]

        def write_parts(value: Value) -> None:
            at = sum(widths)
            for (_, write), width in zip(parts, widths, strict=True):
                at -= width
                write(unsigned(value.bits >> at, width))

        return (lambda: unsigned(0)), write_parts

    def storage(
        self, name: str, low: int, width: int, kind: str, index: int | None
    ) -> tuple[Callable[[], Value], Callable[[Value], None]]:
        attribute = REGISTERS[name][0] if name in REGISTERS else ""

        def whole() -> int:
            if attribute:
                return int(getattr(self.state, attribute))
            old = self.variables.get(name)
            old = old[index] if index is not None and old is not None else old
            return old.bits if isinstance(old, Value) else 0

        def read() -> Value:
            return Value(kind or "u", width or 64, whole() >> low & ((1 << (width or 64)) - 1))

        def write(value: Value) -> None:
            size = width or value.width
            if kind == value.kind == "f" and width not in (0, value.width):
                value = convert(value, width)
            mask = ((1 << size) - 1) << low
            if attribute:
                # a narrower signed number is extended
                signs = value.kind == "i" and value.width < size
                bits = value.number if signs else value.bits
                setattr(self.state, attribute, (whole() & ~mask) | (bits << low & mask))
            elif index is not None:
                items = list(self.variables[name])
                items[index] = value
                self.variables[name] = items
            elif not low and not width:
                self.variables[name] = value
            else:
                old = self.variables.get(name)
                total = max(old.width if isinstance(old, Value) else 0, low + size)
                new_kind = kind if not low and size == total else "u"
                bits = (whole() & ~mask) | (value.bits << low & mask)
                self.variables[name] = Value(new_kind, total, bits)

        return read, write

    # ---- expressions ----

    def choice(self, condition: Node, first: Node, second: Node) -> Value:
        return self.run(first if self.run(condition).bits else second)

    def binary(self, left: Node, symbol: Token, right: Node) -> Value:
        return arithmetic(str(symbol), self.run(left), self.run(right))

    def prefixed(self, sign: Token, operand: Node) -> Value:
        if sign in "+-" and operand in ("0.0", "0.0F"):
            return Value("zero", 64, sign == "-")  # comparisons with +0.0 and -0.0 mean the sign
        value = self.run(operand)
        if sign == "!":
            return unsigned(not value.bits, 1)
        if sign == "+":
            return value
        if sign == "-" and value.kind == "f":
            return Value("f", value.width, value.bits ^ 1 << (value.width - 1))
        bits = ~value.bits if sign == "~" else -value.bits
        return Value(value.kind, value.width, bits & ((1 << value.width) - 1))

    def cast(self, of: Token, operand: Node) -> Value:
        width, kind = of.split("'")
        joined = isinstance(operand, Tree) and operand.data == "concatenation"
        hexadecimal = isinstance(operand, Token) and operand.startswith("0x")
        return cast(self.run(operand), kind.lower(), int(width), joined or hexadecimal)

    def concatenation(self, *parts: Node) -> Value:
        joined, width = 0, 0
        for part in map(self.run, parts):
            joined, width = joined << part.width | part.bits, width + part.width
        return unsigned(joined, width)

    def name(self, text: str) -> Any:
        if text in self.variables:
            return self.variables[text]
        if text in self.state.sources:
            return unsigned(self.state.sources[text], 64)
        if text in REGISTERS:
            attribute, width = REGISTERS[text]
            return unsigned(getattr(self.state, attribute), width)
        raise NotExecutable(f"the name {text!r}")

    def postfix(self, base: Node, *suffixes: Tree[Token]) -> Value:
        if base == "WAVE_MODE":
            if suffixes[0].children != ["IEEE"]:
                raise NotExecutable("a field of MODE but IEEE")
            return unsigned(self.state.ieee, 1)
        value = self.run(base)
        for suffix in suffixes:
            value = getattr(self, suffix.data)(value, *suffix.children)
        return value

    def typed(self, value: Value, of: Token) -> Value:
        kind, width = type_of(of)
        if value.kind == kind == "f" and value.width != width:
            return convert(value, width)
        bits = value.number if value.kind == "i" else value.bits
        return Value(kind, width, bits & ((1 << width) - 1))

    def element(self, value: Any, at: Node) -> Value:
        place = self.run(at).number
        return value[place] if isinstance(value, list) else unsigned(value.bits >> place, 1)

    def bits(self, value: Value, first: Node, last: Node) -> Value:
        high, low = self.run(first).number, self.run(last).number
        if high >= low:
            return unsigned(value.bits >> low, high - low + 1)
        width = low - high + 1  # [0 : 31]: reversed
        return unsigned(int(f"{value.bits >> high & ((1 << width) - 1):0{width}b}"[::-1], 2), width)

    def bits_from(self, value: Value, first: Node, width: Node) -> Value:
        return unsigned(value.bits >> self.run(first).number, self.run(width).number)

    def call(self, name: Token, *arguments: Node) -> Value:
        values = [self.run(argument) for argument in arguments]
        if name in self.functions:
            return self.call_lambda(self.functions[name], values)
        if name.startswith("v_"):
            return self.call_instruction(str(name), values)
        if name not in FUNCTIONS:
            raise NotExecutable(f"the function {name!r}")
        return FUNCTIONS[name](*values)

    def call_lambda(self, function: Tree[Token], values: list[Value]) -> Value:
        *parameters, body = function.children
        outer = self.variables
        self.variables = outer | dict(zip(map(str, parameters), values, strict=True))
        try:
            found: Value = self.run(body)
        except Return as returned:
            found = returned.args[0]
        finally:
            self.variables = outer
        return found

    def call_instruction(self, name: str, values: list[Value]) -> Value:
        if name in ("v_minimum_f32", "v_maximum_f32", "v_minimum3_f16", "v_maximum3_f16"):
            result = values[0]
            for value in values[1:]:
                result = minimum_2019(result, value, "max" in name)
            return result
        if name not in self.table:
            raise NotExecutable(f"the instruction {name!r}")
        inner = State(ieee=self.state.ieee, sources={f"S{i}": v.bits for i, v in enumerate(values)})
        execute(self.table[name], inner, self.table)
        kind, width = type_of(name.rsplit("_", 1)[1].replace("u8", "u32"))
        return Value(kind, width, inner.d0 & ((1 << width) - 1))


def number(text: str) -> Value:
    if "'" not in text:
        return literal(text)
    width, digits = text.split("'")
    if "." in digits:
        return floating(float(digits.rstrip("F")), int(width))
    bits = int(digits.rstrip("UIL"), 0)
    return Value("u" if digits.endswith("U") else "i", int(width), bits & ((1 << int(width)) - 1))


def execute(text: str, state: State, table: dict[str, str]) -> State:
    """Runs one lane's pseudo-code on `state`, which it changes; `table`: code by mnemonic."""
    Interpreter(state, table).run(parsed(text))
    return state
