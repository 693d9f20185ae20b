"""The shipped code objects are those that these sources and this compiler make.

`make test` compiles one kernel of each source that the commit draws. The other sources are compared
by digests of the text that each code object was compiled from. `make test-slow` compiles
everything.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

from hk_backend.kernels import KernelEntry, arches, catalogue
from hk_backend.kernels.catalogue import CODE_OBJECTS, MEASURING
from hk_backend.kernels.index import records
from hk_backend.lab.toolchain import build, compare, sources
from hk_backend.lab.toolchain.compiler import Toolchain
from hk_backend.lab.toolchain.elf import Elf
from hk_backend.lab.toolchain.sources import FOLDERS, MEASURE, SOURCES
from tests.kernels.cover import of_some_kinds
from tests.kernels.sources import keep_kernel
from tests.seed import draw

LARGEST_FILE, ALL_FILES = 1 << 20, 15 << 20  # bytes, in the repository and in the wheel
REMEDY = "run make kernels"

Index = dict[str, Any]


CATALOGUES = {SOURCES: CODE_OBJECTS, MEASURE: MEASURING}
"""Folders of code objects, by the folder of their sources."""
PLACES = [(folder, arch) for folder, objects in CATALOGUES.items() for arch in arches(objects)]


def indexes(folder: Path, arch: str) -> list[Index]:
    found = (CATALOGUES[folder] / arch).glob("*.json")
    return [json.loads(path.read_text()) for path in sorted(found)]


def kernels_of(folder: Path, arch: str) -> dict[str, dict[str, Index]]:
    """Whole records of the kernels of each code object, by name, with their argument structs."""
    found: dict[str, dict[str, Index]] = {}
    for index in indexes(folder, arch):
        for code_object, name, record in records(index):
            record["arguments"] = index["structs"][record["arguments"]]
            found.setdefault(code_object, {})[name] = record
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
    """Marks tests as `same_compiler`: they are skipped if another compiler made the code that
    ships."""
    by = {entry.compiler for place in PLACES for entry in shipped(*place).values()}
    if by != {tools.version}:
        pytest.skip(f"the code objects are by {by}, here is {tools.version}")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the sources in another folder."""
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
    """The test is cheap, since it needs no compiler. Comments count, as they move lines."""
    now = sources.digest(folder / f"{name}.hip", build.ROOT, build.FLAGS)
    files = [
        index["code_objects"][name]
        for index in indexes(folder, arch)
        if name in index["code_objects"]
    ]
    assert {file["sources"] for file in files} == {now}, REMEDY


def test_the_sources_of_a_code_object_are_what_the_compiler_reads(tools: Toolchain) -> None:
    """Checks one code object that the commit draws. Files for another arch count as well."""
    folder, arch, name = draw("files read").choice(UNITS)
    source = folder / f"{name}.hip"
    flags = (*build.FLAGS, f"--offload-arch={arch}", "-E")
    named = re.findall(
        r'^# \d+ "([^</].*?)"', tools.run("clang++", *flags, source, cwd=build.ROOT), re.M
    )
    read = {Path(os.path.normpath(name)) for name in named}
    found = set(sources.included(source, build.ROOT))
    assert len(read) > 10
    assert read <= found
    assert all(path.parent.name == "arch" for path in found - read)


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
    """Instructions, descriptor and record in the index are the same, byte for byte."""
    kernels = kernels_of(folder, arch)[name]
    kernel = draw(f"compile {arch} {name}").choice(sorted(kernels))
    operator = shipped(folder, arch)[kernel].operator
    source = folder / f"{name}.hip"
    keep_kernel(source, kernel, arch, tools, copy)
    built = build.compile_one(source, arch, tmp_path, tools, copy)
    found, expected = (
        one_kernel((place / f"{name}.co").read_bytes(), kernel)
        for place in (tmp_path, CATALOGUES[folder] / arch)
    )
    assert found == expected, f"{REMEDY}: {kernel}"
    record = kernels[kernel]
    del record["figures"]["bank_conflict_factor"]  # takes a run
    assert json.loads(json.dumps(built.kernels)) == {operator: {kernel: record}}, REMEDY


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
    """The contents of a file to compare. Line tables are decompressed first, as zlib's bytes differ
    between its versions."""
    data = path.read_bytes()
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
