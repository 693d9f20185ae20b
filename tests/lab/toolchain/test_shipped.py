"""What ships is what these sources and this compiler make.

`make test` compiles one kernel of each source that the commit draws; the other sources are known by
the digests of what each code object was compiled from. `make test-slow` compiles everything.
"""

from __future__ import annotations

import json
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

from hk_backend.kernels import KernelEntry, arches, catalogue
from hk_backend.kernels.catalogue import CODE_OBJECTS, MEASURING
from hk_backend.lab.toolchain import build, compare, sources
from hk_backend.lab.toolchain.compiler import Toolchain
from hk_backend.lab.toolchain.elf import Elf
from hk_backend.lab.toolchain.sources import FOLDERS, MEASURE, SOURCES
from tests.kernels.cover import of_some_kinds
from tests.kernels.sources import remove_kernels
from tests.seed import draw

LARGEST_FILE, ALL_FILES = 1 << 20, 12 << 20  # bytes, in the repository and in the wheel
REMEDY = "run make kernels"

Index = dict[str, Any]


CATALOGUES = {SOURCES: CODE_OBJECTS, MEASURE: MEASURING}
"""Folders of code objects, by the folder of their sources."""
PLACES = [(folder, arch) for folder, objects in CATALOGUES.items() for arch in arches(objects)]


def indexes(folder: Path, arch: str) -> list[Index]:
    found = (CATALOGUES[folder] / arch).glob("*.json")
    return [json.loads(path.read_text()) for path in sorted(found)]


def kernels_of(folder: Path, arch: str) -> dict[str, list[Index]]:
    """Index entries of each code object's kernels, with their argument structs."""
    found: dict[str, list[Index]] = {}
    for index in indexes(folder, arch):
        for kernel in index["kernels"]:
            kernel["arguments"] = index["structs"][kernel["arguments"]]
        for kernel in index["kernels"]:
            found.setdefault(kernel["code_object"], []).append(kernel)
    return found


def shipped(folder: Path, arch: str) -> dict[str, KernelEntry]:
    """The entries of a catalogue by name."""
    return {entry.name: entry for entry in catalogue(arch, CATALOGUES[folder]).kernels}


UNITS = [(folder, arch, name) for folder, arch in PLACES for name in kernels_of(folder, arch)]
each_source = pytest.mark.parametrize(
    ("folder", "arch", "name"), UNITS, ids=lambda value: getattr(value, "name", value)
)
COMPILED_AGAIN = 2
"""Sources of which a run compiles a kernel."""


@pytest.fixture
def makers(tools: Toolchain) -> None:
    """Marks tests as `same_compiler`: skips them where another compiler made what ships."""
    by = {entry.compiler for place in PLACES for entry in shipped(*place).values()}
    if by != {tools.version}:
        pytest.skip(f"the code objects are by {by}, here is {tools.version}")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The sources, in another folder."""
    for folder in ("csrc/kernels", "csrc/include"):
        shutil.copytree(build.ROOT / folder, tmp_path / folder)
    return tmp_path


def test_there_are_kernels() -> None:
    assert sources.folders(build.ROOT) == list(CATALOGUES) == list(FOLDERS)
    for folder, objects in CATALOGUES.items():
        assert arches(objects) == sources.named_arches(build.ROOT, folder)
    for folder, arch in PLACES:
        built = {path.stem for path in (CATALOGUES[folder] / arch).glob("*.co")}
        assert built == {path.stem for path in sources.built_for(arch, build.ROOT, folder)[0]}


@each_source
def test_each_code_object_is_of_these_sources(folder: Path, arch: str, name: str) -> None:
    """Cheap: no compiler. Also the comments count, as they move lines."""
    for index in indexes(folder, arch):
        if record := index["code_objects"].get(name):
            assert sources.changed(record["sources"], build.ROOT) == [], REMEDY
            assert record["flags"] == " ".join(build.FLAGS), REMEDY
            assert f"{folder}/{name}.hip" in record["sources"]
            assert "csrc/include/hk/kernel_info.hpp" in record["sources"]


def one_kernel(data: bytes, name: str) -> tuple[compare.Kernel, bytes]:
    """The bytes of a kernel that the GPU executes, and its kernel information."""
    elf = Elf(data)
    return dict(compare.kernels_in(elf))[name], elf.symbol_bytes(f"{name}_info")


@pytest.mark.parametrize(
    ("folder", "arch", "name"),
    of_some_kinds(
        "compiled again", COMPILED_AGAIN, {f"{unit[1]} {unit[2]}": unit for unit in UNITS}
    ),
)
@pytest.mark.same_compiler
@pytest.mark.usefixtures("makers")
def test_one_kernel_compiled_again(
    folder: Path, arch: str, name: str, copy: Path, tmp_path: Path, tools: Toolchain
) -> None:
    """Instructions, descriptor and index entry are the same, byte for byte."""
    kernels = kernels_of(folder, arch)[name]
    kernel = draw(f"compile {arch} {name}").choice(kernels)
    entries = shipped(folder, arch)
    operator = entries[kernel["name"]].operator
    source = folder / f"{name}.hip"
    remove_kernels(copy / source, [entries[k["name"]] for k in kernels if k is not kernel])
    built = build.compile_one(source, arch, tmp_path, tools, copy)
    assert [k["name"] for k in built.kernels[operator]] == [kernel["name"]]
    found, expected = (
        one_kernel((place / f"{name}.co").read_bytes(), kernel["name"])
        for place in (tmp_path, CATALOGUES[folder] / arch)
    )
    assert found == expected, f"{REMEDY}: {kernel['name']}"
    (entry,) = json.loads(json.dumps(built.kernels[operator]))
    entry["figures"]["bank_conflict_factor"] = kernel["figures"]["bank_conflict_factor"]
    entry["modelled"] = kernel["modelled"]  # tests/lab/timing/test_catalogue_figures.py
    assert entry == kernel, REMEDY


@pytest.mark.slow
@pytest.mark.same_compiler
@pytest.mark.usefixtures("makers")
def test_same_compiler_same_bytes(copy: Path, tools: Toolchain) -> None:
    for folder, arch in PLACES:
        output = copy / "out" / folder / arch
        build.build(arch, output, tools, root=copy, folder=folder)
        for path in sorted((CATALOGUES[folder] / arch).iterdir()):
            assert content(output / path.name) == content(path), f"{REMEDY}: {path.name}"


def content(path: Path) -> bytes:
    """Of line tables what was compressed: zlib's own bytes differ between its versions. Of an index
    all but what is modelled: tests/lab/timing/test_catalogue_figures.py."""
    data = path.read_bytes()
    if path.suffix == ".json":
        index = json.loads(data)
        kernels = [{**kernel, "modelled": {}} for kernel in index["kernels"]]
        return json.dumps({**index, "kernels": kernels}, indent=1).encode()
    return zlib.decompress(data) if path.suffix == ".lines" else data


def test_no_paths_and_no_debug_information_ship() -> None:
    for path in (file for objects in CATALOGUES.values() for file in objects.glob("*/*.co")):
        assert not re.search(rb"\.debug_|csrc/|/include|\.hip", path.read_bytes())


def test_nothing_is_large() -> None:
    sizes = {path: path.stat().st_size for path in CODE_OBJECTS.rglob("*") if path.is_file()}
    assert [path for path, size in sizes.items() if size > LARGEST_FILE] == []
    assert sum(sizes.values()) <= ALL_FILES


def test_the_line_tables_name_the_source(tmp_path: Path, tools: Toolchain) -> None:
    """Some line tables, which the commit draws, have the path of their source."""
    for folder, arch, name in draw("line tables").sample(UNITS, 4):
        plain = tmp_path / f"{name}.o"
        lines = CATALOGUES[folder] / arch / f"{name}.lines"
        plain.write_bytes(zlib.decompress(lines.read_bytes()))
        tables = tools.run("llvm-dwarfdump", "--debug-line", plain)
        names = set(re.findall(r'name: "(.+)"', tables))
        assert f"{folder}/{name}.hip" in names
        assert not any(each.startswith("/") for each in names), names
