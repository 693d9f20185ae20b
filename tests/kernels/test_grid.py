"""Grids: what their formulas give, and that the launcher's machine gives the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hk_backend._hip import GridProgram
from hk_backend.kernels.grid import GridError, compiled, evaluate


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


NAMES = ("a", "b", "c")
FORMULAS = st.recursive(
    st.integers(0, 300).map(str) | st.sampled_from(NAMES),
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from(["+", "*", "//"]), part).map(lambda p: f"({' '.join(p)})"),
        st.tuples(st.sampled_from(["min", "max", "ceil_div"]), part, part).map(
            lambda p: f"{p[0]}({p[1]}, {p[2]})"
        ),
    ),
    max_leaves=6,
)


@given(
    st.lists(FORMULAS, min_size=1, max_size=3).map(", ".join),
    st.fixed_dictionaries({name: st.integers(0, 2**31 - 1) for name in NAMES}),
)
def test_both_machines_agree(formula: str, values: dict[str, int]) -> None:
    program = GridProgram(compiled(formula))
    try:
        expected = evaluate(formula, values)
    except ZeroDivisionError:
        expected = None
    if expected is None or max(expected) >= 2**32:
        with pytest.raises(ValueError, match="grid formula"):
            program.evaluate(values)
    else:
        assert tuple(program.evaluate(values)) == expected


@pytest.mark.parametrize(
    "formula",
    ["a - 1", "a // 0", "1, 2, 65536 * 65536", "b * b * 4", "c + c + c + c", "a - c - c - c - c"],
)
def test_what_is_no_grid_is_refused(formula: str) -> None:
    """Also what wraps to a grid in 64 bits."""
    values = {"a": 0, "b": 2**31, "c": 2**62}
    with pytest.raises(ValueError, match="grid formula"):
        GridProgram(compiled(formula)).evaluate(values)


@pytest.mark.parametrize(
    "program",
    [
        (),
        (("number", 1),) * 4,
        (("number", 1),) * 17,
        (("number", 1), ("apply", "+")),
        (("number", 1), ("number", 1), ("apply", "**")),
        (("number", 1), ("call", "+")),
    ],
)
def test_programs_that_no_formula_compiles_to(program: tuple[tuple[str, int | str], ...]) -> None:
    with pytest.raises(ValueError, match="grid formula"):
        GridProgram(program)
