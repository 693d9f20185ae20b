"""A grid's formula at a launch: the launcher's machine gives what grid.py says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hk_backend._hip import GridProgram
from hk_backend.kernels.grid import compiled, evaluate

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
