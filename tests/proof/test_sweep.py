"""The sweep's copy has everything that is tested, and what ships is out of its reach."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hk_backend.lab.toolchain import build, sources
from tests.models import ROOT
from tests.processes import finished, python
from tests.proof import sweep

RECORDS = Path("tests/proof/records/gemm.txt")
INDEX = sweep.OBJECTS / "gfx950" / "gemm.json"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a committed, a new, an ignored and a deleted file, and what ships."""
    root = tmp_path / "root"
    for name in ("committed.py", "gone.py", str(RECORDS), str(INDEX)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("shipped")
    (root / ".gitignore").write_text("*.log\n*.so\n")
    for words in (("init", "-q"), ("add", ".")):
        finished("git", *words, cwd=root, check=True)
    (root / "gone.py").unlink()
    for name in ("new.py", "a.log", "hk_backend/_hip.so"):
        (root / name).write_text("here")
    return root


def files(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def test_a_copy_keeps_its_own_kernels_and_records(root: Path, tmp_path: Path) -> None:
    tree, before = tmp_path / "build" / "tree", files(root)
    sweep.copy(root, tree)
    assert files(tree) == {name: text for name, text in before.items() if name != "a.log"}
    for name in (RECORDS, INDEX):
        (tree / name).write_text("the copy's own")
    (root / "committed.py").write_text("edited")
    (root / "new.py").unlink()
    sweep.copy(root, tree)
    own = {str(name): "the copy's own" for name in (RECORDS, INDEX)}
    rest = {"committed.py": "edited", ".gitignore": "*.log\n*.so\n", "hk_backend/_hip.so": "here"}
    assert files(tree) == own | rest
    assert [path.name for path in tree.parent.iterdir()] == ["tree"]
    del before["new.py"]
    assert files(root) == before | {"committed.py": "edited"}


def test_only_what_differs_is_built(tmp_path: Path) -> None:
    """A source is built again for another compiler, or for another text of it."""
    for folder in (sweep.OBJECTS, sources.SOURCES, sources.INCLUDES):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (version,) = {
        record["compiler"]
        for path in (tmp_path / sweep.OBJECTS).rglob("*.json")
        for _, _, record in sweep.kernels_in(json.loads(path.read_text()))
    }
    everything = {
        source for folder in sources.FOLDERS for source in sources.by_arches(build.ROOT, folder)
    }
    assert sweep.stale(tmp_path, version) == []
    assert set(sweep.stale(tmp_path, "another")) == everything
    edited = sources.SOURCES / "quantize.hip"
    (tmp_path / edited).write_text((ROOT / edited).read_text() + "\n")
    assert sweep.stale(tmp_path, version) == [edited]


@pytest.mark.parametrize(("clang", "message"), [("", "name a compiler"), ("no-clang", "no-clang")])
def test_a_compiler_must_be_named(clang: str, message: str) -> None:
    done = python("-m", "tests.proof.sweep", clang, cwd=ROOT)
    assert done.returncode == 2
    assert message in done.stderr
