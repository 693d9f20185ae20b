"""Grid formulas: how many workgroups a launch needs, as text in the catalogue.

    (ceil_div(num_tokens, tile_rows) + num_requests) * num_heads

Integers, names, `+ - * //`, `ceil_div`, `min` and `max`; up to three dimensions, separated by
commas. A formula is parsed, never handed to Python's `eval`.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping

Grid = tuple[int, int, int]

OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def ceil_div(value: int, divisor: int) -> int:
    """The number of parts of `divisor` that cover `value`."""
    return -(-value // divisor)


FUNCTIONS: dict[str, Callable[..., int]] = {"ceil_div": ceil_div, "min": min, "max": max}


class GridError(ValueError):
    """A formula that cannot be read, or a name in it that has no value."""


def evaluate(formula: str, values: Mapping[str, int]) -> Grid:
    """Workgroups in x, y, z. Raises `GridError`, which quotes the formula."""
    dimensions = [_value(node, values, formula) for node in _dimensions(formula)]
    x, y, z = (*dimensions, 1, 1)[:3]
    return x, y, z


@functools.cache  # a launch evaluates its formula; parsing it costs more than the rest
def _dimensions(formula: str) -> list[ast.expr]:
    try:
        body = ast.parse(f"({formula},)", mode="eval").body
    except SyntaxError as error:
        raise GridError(f"grid formula {formula!r}: {error.msg}") from None
    if not isinstance(body, ast.Tuple) or not 1 <= len(body.elts) <= 3:
        raise GridError(f"grid formula {formula!r}: one to three dimensions are valid")
    return body.elts


def _value(node: ast.expr, values: Mapping[str, int], formula: str) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            if name not in values:
                raise GridError(f"grid formula {formula!r}: no value for {name}")
            return values[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](
                _value(left, values, formula), _value(right, values, formula)
            )
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            return FUNCTIONS[name](*(_value(arg, values, formula) for arg in args))
    raise GridError(f"grid formula {formula!r}: cannot read {ast.unparse(node)!r}")
