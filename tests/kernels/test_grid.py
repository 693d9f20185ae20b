"""Grid formulas: what they compute, and what they refuse."""

from __future__ import annotations

import pytest

from hk_backend.kernels.grid import GridError, evaluate


@pytest.mark.parametrize(
    ("formula", "values", "grid"),
    [
        ("7", {}, (7, 1, 1)),
        ("ceil_div(n, 256)", {"n": 256}, (1, 1, 1)),
        ("ceil_div(n, 256)", {"n": 257}, (2, 1, 1)),
        ("ceil_div(n, 256)", {"n": 0}, (0, 1, 1)),
        ("(ceil_div(n, rows) + b) * h", {"n": 5, "rows": 4, "b": 3, "h": 8}, (40, 1, 1)),
        ("a // 2 - 1, max(a, 4), min(a, 4)", {"a": 9}, (3, 9, 4)),
    ],
)
def test_value(formula: str, values: dict[str, int], grid: tuple[int, int, int]) -> None:
    assert evaluate(formula, values) == grid


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("n +", "invalid syntax"),
        ("1, 2, 3, 4", "one to three dimensions"),
        ("__import__('os')", "cannot read"),
        ("n.real", "cannot read 'n.real'"),
        ("n / 2", "cannot read 'n / 2'"),
        ("m", "no value for m"),
    ],
)
def test_refusals_quote_the_formula(formula: str, message: str) -> None:
    with pytest.raises(GridError, match=message) as error:
        evaluate(formula, {"n": 1})
    assert repr(formula) in str(error.value)


def test_functions_take_as_many_arguments_as_they_have_meaning_for() -> None:
    assert evaluate("min(a, 4, 2), max(a, 4, 12)", {"a": 9}) == (2, 12, 1)
    with pytest.raises(GridError, match="cannot read"):
        evaluate("ceil_div(a, 4, 2)", {"a": 9})
