"""A grid's formula at a launch: the launcher's machine gives what grid.py says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hk_backend._hip import GridProgram
from hk_backend.kernels import arches, catalogue
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


def test_floor_of_what_is_negative() -> None:
    """Towards minus infinity, as Python's: C++ alone would round to zero."""
    formula = "10 + (a - b) // c, 10 + ceil_div(a - b, c)"
    for a in range(8):
        values = {"a": a, "b": 5, "c": 3}
        assert tuple(GridProgram(compiled(formula)).evaluate(values)) == evaluate(formula, values)


def test_every_formula_of_the_catalogue() -> None:
    for arch in arches():
        for entry in catalogue(arch).kernels:
            program = GridProgram(compiled(entry.grid_formula))
            sizes = {name: 1000 + i for i, name in enumerate(program.names)}
            found = program.evaluate({**sizes, **entry.grid_constants})
            assert tuple(found) == entry.grid(
                **{name: size for name, size in sizes.items() if name not in entry.grid_constants}
            )


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
