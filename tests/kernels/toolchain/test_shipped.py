"""What ships is what these sources and this compiler make.

`make test` compiles one kernel of each source again; the rest is known by the digests of what each
code object was compiled from. `make test-slow` compiles everything.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from hk_backend.kernels import arches, catalogue
from hk_backend.kernels.arguments import FORMATS
from hk_backend.kernels.catalogue import CODE_OBJECTS
from hk_backend.kernels.toolchain import build, compare, metadata, sources
from hk_backend.kernels.toolchain.compiler import Toolchain
from hk_backend.kernels.toolchain.elf import Elf
from hk_backend.kernels.toolchain.sources import SOURCES
from tests.kernels.sources import remove_kernels
from tests.seed import draw

LARGEST_FILE, ALL_FILES = 1 << 20, 8 << 20  # bytes, in the repository and in the wheel
REMEDY = "run make kernels"

Index = dict[str, Any]


def indexes(arch: str) -> list[Index]:
    return [json.loads(path.read_text()) for path in sorted((CODE_OBJECTS / arch).glob("*.json"))]


def kernels_of(arch: str) -> dict[str, list[Index]]:
    """What the indexes say of the kernels of each code object."""
    found: dict[str, list[Index]] = {}
    for index in indexes(arch):
        for kernel in index["kernels"]:
            found.setdefault(kernel["code_object"], []).append(kernel)
    return found


UNITS = [(arch, name) for arch in arches() for name in kernels_of(arch)]
each_source = pytest.mark.parametrize(("arch", "name"), UNITS)


@pytest.fixture
def makers(tools: Toolchain) -> None:
    """For tests marked `same_compiler`: skips them where another compiler made what ships."""
    by = {entry.compiler for arch in arches() for entry in catalogue(arch).kernels}
    if by != {tools.version}:
        pytest.skip(f"the code objects are by {by}, here is {tools.version}")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The sources, in another folder."""
    for folder in ("csrc/kernels", "csrc/include"):
        shutil.copytree(build.ROOT / folder, tmp_path / folder)
    return tmp_path


def test_there_are_kernels() -> None:
    assert arches() == sources.named_arches(build.ROOT)
    for arch in arches():
        built = {path.stem for path in (CODE_OBJECTS / arch).glob("*.co")}
        assert built == {path.stem for path in sources.built_for(arch, build.ROOT)[0]}


@each_source
def test_each_code_object_is_of_these_sources(arch: str, name: str) -> None:
    """Cheap: no compiler. Also the comments count, as they move lines."""
    for index in indexes(arch):
        if record := index["code_objects"].get(name):
            assert sources.changed(record["sources"], build.ROOT) == [], REMEDY
            assert record["flags"] == " ".join(build.FLAGS), REMEDY
            assert f"{SOURCES}/{name}.hip" in record["sources"]
            assert "csrc/include/hk/kernel_info.hpp" in record["sources"]


def test_a_source_that_changed_is_named(copy: Path) -> None:
    names = ["csrc/kernels/gemm.hip", "csrc/include/hk/args/gemm.hpp", "csrc/include/hk/hk.hpp"]
    recorded = sources.digests(names, copy)
    assert sources.changed(recorded, copy) == []
    (copy / names[0]).write_text((copy / names[0]).read_text() + "//")
    (copy / names[2]).unlink()
    assert sources.changed(recorded, copy) == [names[0], names[2]]


def one_kernel(data: bytes, name: str) -> tuple[compare.Kernel, bytes]:
    """What the GPU executes of it, and its kernel information."""
    elf = Elf(data)
    return dict(compare.kernels_in(elf))[name], elf.symbol_bytes(f"{name}_info")


@each_source
@pytest.mark.same_compiler
@pytest.mark.usefixtures("makers")
def test_one_kernel_compiled_again(
    arch: str, name: str, copy: Path, tmp_path: Path, tools: Toolchain
) -> None:
    """Its instructions, its descriptor and its entry of the index, byte for byte."""
    shipped = kernels_of(arch)[name]
    kernel = draw(f"compile {arch} {name}").choice(shipped)
    entries = {entry.name: entry for entry in catalogue(arch).kernels}
    operator = entries[kernel["name"]].operator
    source = SOURCES / f"{name}.hip"
    remove_kernels(copy / source, [entries[k["name"]] for k in shipped if k is not kernel])
    built = build.compile_one(source, arch, tmp_path, tools, copy)
    assert [k["name"] for k in built.kernels[operator]] == [kernel["name"]]
    found, expected = (
        one_kernel((folder / f"{name}.co").read_bytes(), kernel["name"])
        for folder in (tmp_path, CODE_OBJECTS / arch)
    )
    assert found == expected, f"{REMEDY}: {kernel['name']}"
    (entry,) = json.loads(json.dumps(built.kernels[operator]))
    entry["figures"]["bank_conflict_factor"] = kernel["figures"]["bank_conflict_factor"]
    assert entry == kernel, REMEDY


@pytest.mark.slow
@pytest.mark.same_compiler
@pytest.mark.usefixtures("makers")
def test_same_compiler_same_bytes(copy: Path, tools: Toolchain) -> None:
    for arch in arches():
        build.build(arch, copy / "out" / arch, tools, root=copy)
        for shipped in sorted((CODE_OBJECTS / arch).iterdir()):
            again = copy / "out" / arch / shipped.name
            assert content(again) == content(shipped), f"{REMEDY}: {shipped.name}"


def content(path: Path) -> bytes:
    """Of line tables what was compressed: zlib's own bytes differ between its versions."""
    data = path.read_bytes()
    return zlib.decompress(data) if path.suffix == ".lines" else data


def test_no_paths_and_no_debug_information_ship() -> None:
    for arch in arches():
        for path in (CODE_OBJECTS / arch).glob("*.co"):
            assert not re.search(rb"\.debug_|csrc/|/include|\.hip", path.read_bytes())


def test_nothing_is_large() -> None:
    sizes = {path: path.stat().st_size for path in CODE_OBJECTS.glob("*/*")}
    assert [path for path, size in sizes.items() if size > LARGEST_FILE] == []
    assert sum(sizes.values()) <= ALL_FILES


def test_the_line_tables_name_the_source(tmp_path: Path, tools: Toolchain) -> None:
    for arch in arches():
        for path in (CODE_OBJECTS / arch).glob("*.lines"):
            plain = tmp_path / path.name
            plain.write_bytes(zlib.decompress(path.read_bytes()))
            tables = tools.run("llvm-dwarfdump", "--debug-line", plain)
            names = set(re.findall(r'name: "(.+)"', tables))
            assert f"csrc/kernels/{path.stem}.hip" in names
            assert not any(name.startswith("/") for name in names), names


def test_no_hidden_arguments(tools: Toolchain) -> None:
    for arch in arches():
        for path in (CODE_OBJECTS / arch).glob("*.co"):
            for kernel in metadata.read(path, tools):
                assert kernel.arguments == ("by_value",), kernel.name
                entry = catalogue(arch).kernel(kernel.name)
                assert entry.arguments.size == kernel.argument_size


def test_every_entry_is_complete() -> None:
    for arch in arches():
        names = [entry.name for entry in catalogue(arch).kernels]
        assert len(set(names)) == len(names)
        for entry in catalogue(arch).kernels:
            assert entry.code_object()
            assert entry.block % 64 == 0
            assert min(entry.vgpr, entry.sgpr, entry.figures.waves_per_simd) > 0
            ends = [0]
            for field in entry.arguments.fields:
                assert field.offset >= ends[-1], field
                assert field.offset % struct.calcsize(FORMATS[field.type]) == 0
                ends.append(field.offset + field.size)
            assert ends[-1] <= entry.arguments.size
