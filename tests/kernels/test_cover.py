"""The covers have every pair, only what the catalogue has, and are drawn by the seed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from hk_backend.kernels import KernelEntry
from tests import seed
from tests.kernels.cover import Row, cover, covered, facts_of, family, of_some_kinds, pairwise

AXES: list[tuple[Any, ...]] = [(0, 1, 2, 3), ("a", "b"), (None, 0.5, 2.0), (False, True), (7,)]


def pairs(rows: list[Row]) -> set[Any]:
    return {
        ((i, row[i]), (j, row[j]))
        for row in rows
        for i, j in itertools.combinations(range(len(row)), 2)
    }


def test_every_pair_of_values() -> None:
    rows = pairwise("any", AXES)
    assert pairs(rows) == pairs(list(itertools.product(*AXES)))
    assert len(rows) < 4 * 3 * 2, "no more than the longest axes ask for, about"


def test_rows_begin_as_something_that_exists() -> None:
    """As kernels do: three of the eight combinations of the first two axes."""
    known = [(0, "a"), (1, "b"), (3, "a")]
    rows = pairwise("any", AXES, known)
    assert {row[:2] for row in rows} == set(known)
    possible = [row for row in itertools.product(*AXES) if row[:2] in known]
    assert pairs(rows) == pairs(possible)


@pytest.mark.parametrize("name", ["any", "another", "third"])
@pytest.mark.parametrize("operator", ["attention_prefill", "gemm", "quantize_fp8"])
def test_facts_are_axes(operator: str, name: str) -> None:
    """Each pair of facts that a kernel has, and each with each value; also the rows of its tile."""
    rows = [(*facts_of(entry), row["size"]) for entry, row in cover(name, operator, size=(1, 2, 3))]
    every = [(*facts_of(entry), size) for entry in family(operator) for size in (1, 2, 3)]
    assert pairs(rows) == pairs(every)


@pytest.mark.parametrize("only", [None, {"dtype": ("bf16",)}], ids=["all", "bf16"])
def test_each_kernel_has_a_case(only: dict[str, tuple[str, ...]] | None) -> None:
    @covered("attention_prefill", only, size=(1, 2, 3), keys=("packed",))
    def nothing(entry: KernelEntry, size: int) -> None: ...

    proof, parametrize = nothing.pytestmark
    assert (proof.name, proof.kwargs) == ("proof", {"with_types": only is None})
    names, params = parametrize.args
    assert names == ("entry", "size")
    packed = [e for e in family("attention_prefill") if e.facts["keys"] == "packed"]
    wanted = [e for e in packed if only is None or e.facts["dtype"] == "bf16"]
    assert {param.values[0] for param in params} == set(wanted)
    assert {param.values[1] for param in params} == {1, 2, 3}
    assert len(params) < 3 * len(wanted)
    assert len({param.id for param in params}) == len(params)


def test_one_case_of_some_kinds_is_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {name: [name] for name in ("a: 1", "a: 2", "a: 3", "b", "c: 1")}
    found = set()
    for commit in range(30):
        monkeypatch.setenv(seed.VARIABLE, str(commit))
        rows = of_some_kinds("any", 2, cases)
        assert [row.id for row in rows] == list(cases)
        assert [list(row.values) for row in rows] == list(cases.values())
        drawn = [row.id for row in rows if not row.marks]
        assert len({name[0] for name in drawn}) == len(drawn) == 2
        found.update(drawn)
    assert found == set(cases), "every case is drawn by some commit"
