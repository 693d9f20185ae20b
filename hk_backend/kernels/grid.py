"""Grid formulas: how many workgroups a launch needs, as text in the catalogue.

    (ceil_div(num_tokens, tile_rows) + num_requests) * num_heads

A formula has integers, names, `+ - * //`, `ceil_div`, `min` and `max`, and up to three dimensions,
separated by commas. It is never passed to Python's `eval`, but compiled to a program for a stack
machine. `evaluate` runs the program here, and the launcher runs it at launch time
(csrc/hip/grid.hpp).
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Iterator, Mapping
from itertools import chain

Grid = tuple[int, int, int]
Instruction = tuple[str, int | str]
"""One step of the stack machine. ("number", 3) and ("name", "num_tokens") push a value; ("apply",
"+") takes two values and pushes one."""
Program = tuple[Instruction, ...]
"""A compiled formula. It leaves x, y and z on the stack; a missing dimension is 1."""

OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
}


def ceil_div(value: int, divisor: int) -> int:
    """The number of parts of `divisor` that cover `value`."""
    return -(-value // divisor)


APPLY: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "ceil_div": ceil_div,
    "min": min,
    "max": max,
}


class GridError(ValueError):
    """A formula cannot be read, or a name in it has no value."""


def evaluate(formula: str, values: Mapping[str, int]) -> Grid:
    """Workgroups in x, y, z. Raises `GridError`, which quotes the formula."""
    stack: list[int] = []
    for kind, operand in compiled(formula):
        if isinstance(operand, int):
            stack.append(operand)
        elif kind == "apply":
            right = stack.pop()
            stack.append(APPLY[operand](stack.pop(), right))
        elif operand in values:
            stack.append(values[operand])
        else:
            raise GridError(f"grid formula {formula!r}: no value for {operand}")
    x, y, z = (*stack, 1, 1)[:3]
    return x, y, z


@functools.cache
def compiled(formula: str) -> Program:
    """The program of `formula`. Raises `GridError`, which quotes it."""
    try:
        body = ast.parse(f"({formula},)", mode="eval").body
    except SyntaxError as error:
        raise GridError(f"grid formula {formula!r}: {error.msg}") from None
    if not isinstance(body, ast.Tuple) or not 1 <= len(body.elts) <= 3:
        raise GridError(f"grid formula {formula!r}: one to three dimensions are valid")
    return tuple(chain.from_iterable(_instructions(node, formula) for node in body.elts))


def _instructions(node: ast.expr, formula: str) -> Iterator[Instruction]:
    match node:
        case ast.Constant(value=int(number)):
            yield "number", number
        case ast.Name(id=name):
            yield "name", name
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            yield from _instructions(left, formula)
            yield from _instructions(right, formula)
            yield "apply", OPERATORS[type(op)]
        case ast.Call(
            func=ast.Name(id=("min" | "max" | "ceil_div") as name),
            args=[first, second, *rest],
            keywords=[],
        ) if name != "ceil_div" or not rest:
            yield from _instructions(first, formula)
            for argument in (second, *rest):
                yield from _instructions(argument, formula)
                yield "apply", name
        case _:
            raise GridError(f"grid formula {formula!r}: cannot read {ast.unparse(node)!r}")
