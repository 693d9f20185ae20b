"""What an index keeps of the one before."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hk_backend.kernels.toolchain import build
from hk_backend.kernels.toolchain.compiler import Toolchain
from hk_backend.kernels.toolchain.figures import ModelledLaunch
from hk_backend.kernels.toolchain.sources import SOURCES
from tests.kernels.sources import ARCH, Source, write


def test_a_source_alone_leaves_the_others(tmp_path: Path, tools: Toolchain) -> None:
    """One source changed and built: of another, of the same operator, the index keeps what it had;
    a source that is gone leaves nothing."""
    root = write(tmp_path, Source(name="a"), Source(name="b"), Source(name="gone"))
    folder = tmp_path / "out" / ARCH
    build.build(ARCH, folder, tools, root=root)
    first = json.loads((folder / "test.json").read_text())
    path = root / SOURCES / "a.hip"
    path.write_text(path.read_text().replace("{1, 2, 3,", "{4, 2, 3,"))
    (root / SOURCES / "gone.hip").unlink()
    build.build(ARCH, folder, tools, [path.relative_to(root)], root=root)
    second = json.loads((folder / "test.json").read_text())
    assert [kernel["tile"]["rows"] for kernel in second["kernels"]] == [4, 1]
    assert second["kernels"][1] == first["kernels"][1]
    assert list(second["code_objects"]) == ["a", "b"]
    names = {f"{name}.{end}" for name in "ab" for end in ("co", "lines")}
    assert {path.name for path in folder.iterdir()} == names | {"test.json"}


def test_what_was_modelled_of_the_same_code_stays(tmp_path: Path, tools: Toolchain) -> None:
    """A comment changes no instruction; another operation does."""
    root = write(tmp_path, Source())
    folder, source = tmp_path / "out" / ARCH, root / SOURCES / "small.hip"

    def built(text: str) -> Any:
        source.write_text(text)
        build.build(ARCH, folder, tools, root=root)
        return json.loads((folder / "test.json").read_text())

    index, text = built(source.read_text()), source.read_text()
    assert index["kernels"][0]["modelled"] == {}
    launches = {"a shape": asdict(ModelledLaunch(1.5, "matrix", 0.25, None))}
    index["kernels"][0]["modelled"] = launches
    (folder / "test.json").write_text(json.dumps(index))
    assert built(f"// a comment\n{text}")["kernels"][0]["modelled"] == launches
    assert built(text.replace("*a.y = *a.x", "*a.y = 2"))["kernels"][0]["modelled"] == {}
