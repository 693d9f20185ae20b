"""Each test of the suite is in one part."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.models import ROOT
from tests.suite import parts
from tests.suite.parts import Part


def files(part: Part) -> list[Path]:
    """The test files that a part runs."""
    words = [word for word in part.arguments if "tests" in word]
    ignored = [ROOT / word.removeprefix("--ignore=") for word in words if word.startswith("-")]
    asked = [ROOT / word for word in words if not word.startswith("-")]
    found = [file for path in asked for file in path.rglob("test_*.py")]
    return [file for file in found if not any(file.is_relative_to(path) for path in ignored)]


def test_every_file_is_in_one_part() -> None:
    """But tests of both engines, which are in two."""
    found = Counter(file for part in parts.ALL for file in files(part))
    every = (ROOT / "tests").rglob("test_*.py")
    assert found == {file: 1 + file.is_relative_to(ROOT / parts.BOTH) for file in every}


@pytest.mark.parametrize("part", [*parts.ALL, *parts.HELD, parts.QUICK], ids=lambda part: part.name)
def test_a_part_s_paths_exist(part: Part) -> None:
    named = [word.split("=")[-1].split("::")[0] for word in part.arguments if "tests" in word]
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_only_tests_without_engines_share_the_cores() -> None:
    assert "-n" in parts.UNITS_PART.command(sys.executable)
    assert "-n" not in parts.VLLM_PART.command(sys.executable)
    assert parts.VLLM_PART.only("-m", "held").command("python")[-2:] == ["-m", "held"]
