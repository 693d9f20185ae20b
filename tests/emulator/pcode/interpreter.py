"""Statements and calls of the pseudo-code."""

from __future__ import annotations

from collections.abc import Callable

from tests.emulator.pcode.expressions import Expressions
from tests.emulator.pcode.functions import FUNCTIONS
from tests.emulator.pcode.numbers import (
    NotExecutable,
    Value,
    convert,
    minimum_2019,
    signed,
    unsigned,
)
from tests.emulator.pcode.operators import arithmetic
from tests.emulator.pcode.state import State


class _Break(Exception):
    pass


class _Return(Exception):
    def __init__(self, value: Value) -> None:
        self.value = value


class Interpreter(Expressions):
    """One run over the tokens of one instruction's pseudo-code."""

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
                value = arithmetic(symbol[0], read(), self.expression(live), live)
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
        if name not in FUNCTIONS:
            raise NotExecutable(f"the function {name!r}")
        return FUNCTIONS[name](*arguments)

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


def execute(text: str, state: State, table: dict[str, str]) -> State:
    """Runs one lane's pseudo-code on `state`, which it changes; `table`: code by mnemonic."""
    return Interpreter(text, state, table).run()
