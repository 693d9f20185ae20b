"""Faults: their paragraphs, where they are in a text, and what becomes stale."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models import ROOT
from tests.mutants import results
from tests.mutants.fault import Fault, StaleFaultError, definition, parse, read, written

TEXT = """\
import os

if os.name:

    class Box:
        @property
        def size(self):
            return 1

        def other(self):
            return 1


def size():
    return 1
"""
PARAGRAPH = """\
a/b.py: Box.size
a size too many
-return 1
+return 2"""


def test_each_fault_has_its_place() -> None:
    """Code that moves takes its faults along: a stale one is asked of no test."""
    for each in read():
        each.span((ROOT / each.file).read_text())


def test_a_paragraph_is_read_and_written() -> None:
    fault = parse("room", PARAGRAPH)
    assert fault == Fault("room", "a size too many", "a/b.py", "Box.size", "return 1", "return 2")
    assert written(fault) == PARAGRAPH
    kernel = f"{PARAGRAPH}\n* csrc/kernels/gemm.hip\n= equivalent: nobody asks"
    assert parse("room", kernel).equivalent == "nobody asks"
    assert written(parse("room", kernel)) == kernel


@pytest.mark.parametrize("within", ["Box.size", "Box.other", "size"])
def test_only_the_definition_changes(within: str) -> None:
    """A definition begins with its decorators."""
    fault = Fault("room", "", "", within, "return 1", "return 2")
    changed = fault.applied(TEXT)
    begin, end = definition(TEXT, within)
    assert TEXT[begin:end].split(maxsplit=1)[0] == ("@property" if within == "Box.size" else "def")
    assert TEXT[begin:end].replace("return 1", "return 2") == changed[begin:end]
    assert changed.count("return 1") == 2


@pytest.mark.parametrize(
    ("within", "old", "why"),
    [
        ("Box.size", "return 3", "occurs 0 times in Box.size"),
        ("", "return 1", "occurs 3 times"),
        ("Box.gone", "return 1", "there is no Box.gone"),
    ],
)
def test_a_text_that_is_not_there_once_is_stale(within: str, old: str, why: str) -> None:
    with pytest.raises(StaleFaultError, match=why):
        Fault("room", "", "", within, old, "").applied(TEXT)


def test_what_is_no_list_of_faults(tmp_path: Path) -> None:
    """A paragraph without a change, and a fault that is there twice, are refused."""
    for line in ("?", "+return 2"):
        with pytest.raises(ValueError, match=r"room: a/b\.py"):
            parse("room", f"a/b.py\nname\n{line}")
    (tmp_path / "room.txt").write_text(f"{PARAGRAPH}\n\n{PARAGRAPH}\n")
    with pytest.raises(ValueError, match="twice"):
        read(tmp_path)


def test_there_are_200_and_each_result_is_of_one() -> None:
    faults = read()
    assert len(faults) >= 200
    assert results.read().keys() <= {fault.key for fault in faults}


def test_results_are_in_the_order_of_faults(tmp_path: Path) -> None:
    faults = [Fault("room", "", "", "", str(number), "") for number in range(2)]
    found = [results.Result("test", "abc", 1, "room", each.key, "by this") for each in faults]
    results.write(reversed(found), faults, tmp_path / "results.txt")
    assert list(results.read(tmp_path / "results.txt").values()) == found
