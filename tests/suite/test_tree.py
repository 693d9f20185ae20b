"""Results are kept for a tree, so any change of a file that git would take makes another."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.suite import tree


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for command in (
        ["init", "-q"],
        ["config", "user.email", "a@b"],
        ["config", "user.name", "a"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    (tmp_path / ".gitignore").write_text("*.o\n")
    (tmp_path / "kept").write_text("one")
    commit(tmp_path)
    return tmp_path


def commit(repository: Path) -> None:
    subprocess.run(["git", "-C", str(repository), "add", "-A"], check=True)
    subprocess.run(["git", "-C", str(repository), "commit", "-qm", "."], check=True)


def test_the_same_tree(repository: Path) -> None:
    before = tree.digest(repository)
    (repository / "built.o").write_text("ignored")
    (repository / "kept").write_text("two")
    (repository / "kept").write_text("one")
    assert tree.digest(repository) == before
    assert not tree.commit(repository).endswith("+")


@pytest.mark.parametrize("change", ["edit", "new", "delete", "rename", "commit"])
def test_another_tree(repository: Path, change: str) -> None:
    before = tree.digest(repository)
    kept = repository / "kept"
    if change == "delete":
        kept.unlink()
    elif change == "rename":
        kept.rename(repository / "other")
    else:
        (kept if change == "edit" else repository / "new").write_text("two")
    if change == "commit":
        commit(repository)
    assert tree.digest(repository) != before
    assert tree.commit(repository).endswith("+") == (change != "commit")
