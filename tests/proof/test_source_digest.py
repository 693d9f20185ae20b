"""A definition's digest follows what the definition reaches, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof import source_digest as digests

MODULES = {
    "__init__.py": "",
    "conftest.py": "import pytest\n\n@pytest.fixture\ndef tool():\n    return 1\n",
    "star.py": "def from_star():\n    return 3\n",
    "part.py": (
        "from sample.star import *\n"
        "LIMIT = 3\n"
        "class Base:\n    def method(self):\n        return LIMIT\n"
        "def used(x: Base):\n    return from_star()\n"
        "def unused():\n    return 0\n"
    ),
    "late.py": "def late():\n    return 4\n",
    "test_it.py": (
        "from sample import part\n"
        "def test_it(tool):\n"
        '    """About it."""\n'
        "    from sample.late import late\n"
        "    part.used(None)  # a comment\n"
        "    late()\n"
        "def test_other():\n    part.unused()\n"
    ),
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `sample` in place of the project's."""
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text)
    forget()
    monkeypatch.setattr(digests, "PACKAGES", {"sample": tmp_path})
    yield tmp_path
    forget()


def forget() -> None:
    cached = ("source_digest", "reached", "_references", "_table", "path_of", "_tree", "_meaning")
    for name in cached:
        getattr(digests, name).cache_clear()


def digest() -> str:
    forget()
    return digests.source_digest("sample.test_it", "test_it")


def test_what_it_reaches(package: Path) -> None:
    found = {str(each) for each in digests.reached("sample.test_it", "test_it")}
    assert found == {
        "sample.test_it.test_it",
        "sample.conftest.tool",
        "sample.late.late",
        "sample.part.used",
        "sample.part.Base",
        "sample.part.LIMIT",
        "sample.star.from_star",
    }
    with pytest.raises(ValueError, match=r"sample\.test_it\.test_that"):
        digests.source_digest("sample.test_it", "test_that")


@pytest.mark.parametrize(
    ("file", "old", "new", "matters"),
    [
        ("test_it.py", "late()\n", "late() + 1\n", True),
        ("conftest.py", "return 1", "return 2", True),
        ("star.py", "return 3", "return 5", True),
        ("part.py", "LIMIT = 3", "LIMIT = 4", True),
        ("part.py", "return LIMIT", "return -LIMIT", True),
        ("late.py", "return 4", "return 6", True),
        ("test_it.py", "# a comment", "# another", False),
        ("test_it.py", "About it.", "About it all.", False),
        ("test_it.py", "part.unused()", "part.unused", False),
        ("part.py", "return 0", "return 1", False),
        ("part.py", "LIMIT = 3\n", "LIMIT = 3\n\n\n", False),
    ],
)
def test_a_change_matters_where_it_is_reached(
    package: Path, file: str, old: str, new: str, matters: bool
) -> None:
    before = digest()
    change(package / file, old, new)
    assert (digest() != before) == matters


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_proofs_of_kernels_do_not_hang_on_the_devices() -> None:
    """An edit of a planner or of a device invalidates no record of a kernel's arithmetic."""
    found = digests.reached("tests.kernels.test_attention_window", "test_windows_within_one_tile")
    modules = {each.module for each in found}
    assert "tests.ops.oracle" in modules
    assert not {name for name in modules if name.startswith("hk_backend.devices")}
