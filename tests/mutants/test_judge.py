"""Conclusions of the judge from runs of tests, in a tree whose runs are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tests.mutants.fault import Fault
from tests.mutants.judge import Judge
from tests.mutants.tree import NOT_FOUND, Outcome

FAULT = Fault("routing", "", "hk_backend/x.py", "", "a", "b")
GOOD, BAD = "tests/test_x.py::test_good", "tests/test_x.py::test_bad"
Run = Callable[[Sequence[str], bool], Outcome]


class GivenTree:
    """`answer`: the outcome of a run, by its arguments and whether the fault is in the tree."""

    def __init__(self, answer: Run) -> None:
        self.answer, self.faulty = answer, True

    @contextmanager
    def without(self, fault: Fault) -> Iterator[None]:
        self.faulty = False
        yield
        self.faulty = True

    def run(
        self, arguments: Sequence[str], seconds: float, sglang: bool, variables: Mapping[str, str]
    ) -> Outcome:
        return self.answer(arguments, self.faulty)


def believed(answer: Run, *arguments: str) -> str:
    tree: Any = GivenTree(answer)
    return Judge(tree)._believed(FAULT, list(arguments), False)


def test_a_failure_counts_if_the_test_passes_without_the_fault() -> None:
    assert believed(lambda _, faulty: Outcome(BAD if faulty else "", 1, 1), GOOD, BAD) == BAD


def test_a_test_that_dies_is_asked_again_by_its_name() -> None:
    def answer(arguments: Sequence[str], faulty: bool) -> Outcome:
        if not faulty:
            assert list(arguments) == [BAD]
        return Outcome(f"signal 6: {BAD}" if faulty else "", 1, 1)

    assert believed(answer, BAD) == f"signal 6: {BAD}"


@pytest.mark.parametrize("arguments", [(BAD, GOOD), ("tests",)])
def test_a_test_that_always_fails_is_left_out(arguments: tuple[str, ...]) -> None:
    """The other tests are asked again."""

    def answer(asked: Sequence[str], faulty: bool) -> Outcome:
        found = (BAD, GOOD) if asked[0] == "tests" else (name for name in asked if "::" in name)
        left = [name for name in found if f"--deselect={name}" not in asked]
        failed = [name for name in left if name == BAD or (name == GOOD and faulty)]
        return Outcome((failed or [""])[0], 1, len(left))

    assert believed(answer, *arguments) == GOOD


def test_a_test_that_cannot_be_left_out_ends_the_question() -> None:
    assert believed(lambda *_: Outcome(BAD, 1, 1), "tests") == ""


def test_tests_that_have_gone_are_not_asked() -> None:
    def answer(arguments: Sequence[str], faulty: bool) -> Outcome:
        gone = frozenset({BAD} & set(arguments))
        return Outcome("" if gone or not faulty else GOOD, 1, 1, gone)

    assert believed(answer, BAD, GOOD) == GOOD
    assert believed(lambda *_: Outcome("", 1, 0, frozenset({"another name"})), BAD) == ""


@pytest.mark.parametrize("always", [True, False])
def test_tests_that_cannot_be_collected_count_if_the_fault_is_why(always: bool) -> None:
    def answer(_: Sequence[str], faulty: bool) -> Outcome:
        return Outcome("collection" if faulty or always else "", 1, 0)

    assert believed(answer, "tests") == ("" if always else "collection")


def test_the_names_that_pytest_does_not_find() -> None:
    log = (
        "ERROR: file or directory not found: tests/test_gone.py::test_x[1-a]\n"
        "ERROR: not found: /tree/tests/test_x.py::test_gone\n"
    )
    names = ["tests/test_gone.py::test_x[1-a]", "/tree/tests/test_x.py::test_gone"]
    assert NOT_FOUND.findall(log) == names
