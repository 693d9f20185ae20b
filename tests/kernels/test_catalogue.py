"""The loading side: an entry's code object is what was built, or a clear error."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hk_backend.kernels import ArgumentError, CodeObjectError, catalogue, pack_arguments
from hk_backend.kernels.catalogue import KernelEntry, code_object_arch
from hk_backend.kernels.toolchain import build
from hk_backend.kernels.toolchain.compiler import Toolchain
from tests.kernels.sources import ARCH, Source, write


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tools: Toolchain) -> Path:
    root = write(tmp_path_factory.mktemp("tree"), Source())
    build.build(ARCH, root / "out" / ARCH, tools, root=root)
    return root / "out"


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(built, tmp_path / "copy"))


def small(folder: Path) -> KernelEntry:
    return catalogue(ARCH, folder).kernel("small")


def test_entry(built: Path) -> None:
    entry = small(built)
    assert code_object_arch(entry.code_object()) == ARCH
    assert (entry.symbol, entry.block, entry.dynamic_lds, entry.static_lds) == ("small", 64, 0, 0)
    assert [(f.name, f.type, f.offset) for f in entry.arguments.fields] == [
        ("x", "pointer", 0),
        ("y", "pointer", 8),
        ("n", "int32", 16),
    ]
    assert entry.arguments.size == 24
    assert entry.grid(n=5) == (5, 1, 1)
    assert entry.lines.is_file()


def test_device_names_carry_features(built: Path) -> None:
    assert catalogue("gfx950:sramecc+:xnack-", built).arch == ARCH


def test_unknown_names_list_what_there_is(built: Path) -> None:
    with pytest.raises(CodeObjectError, match="no kernels for 'gfx90a'; arches: gfx950"):
        catalogue("gfx90a", built)
    with pytest.raises(KeyError, match="no kernel 'big' for gfx950; there are: small"):
        catalogue(ARCH, built).kernel("big")


def test_argument_errors_name_kernel_and_field(built: Path) -> None:
    with pytest.raises(ArgumentError, match="small: missing y"):
        pack_arguments(small(built), x=0, n=1)


def remove(path: Path) -> None:
    path.unlink()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def change(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def other_arch(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[48] = 0x4C  # e_flags: gfx942
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove, r"small: cannot read the code object .*small\.co: No such file"),
        (truncate, r"small\.co has \d+ bytes instead of \d+"),
        (empty, r"small\.co has 0 bytes instead of \d+"),
        (change, r"small\.co was changed: its sha256 is not the catalogue's"),
        (other_arch, r"small\.co is for gfx942, not for gfx950"),
    ],
)
def test_damage_is_refused(folder: Path, damage: Callable[[Path], None], message: str) -> None:
    entry = small(folder)
    damage(entry.path)
    with pytest.raises(CodeObjectError, match=message):
        entry.code_object()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kernels": [{}]}'])
def test_a_damaged_catalogue_is_refused(folder: Path, text: str) -> None:
    path = folder / ARCH / "catalogue.json"
    path.write_text(text)
    with pytest.raises(CodeObjectError, match=r"catalogue\.json is damaged"):
        catalogue(ARCH, folder)


def alter(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / ARCH / "catalogue.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("sha256", "0" * 64, "was changed: its sha256 is not the catalogue's"),
        ("size", 1, r"has \d+ bytes instead of 1"),
    ],
)
def test_a_catalogue_of_other_code_is_noticed(
    folder: Path, key: str, value: object, message: str
) -> None:
    alter(folder, lambda data: data["code_objects"]["small"].update({key: value}))
    with pytest.raises(CodeObjectError, match=message):
        small(folder).code_object()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(arch="gfx942"), r"catalogue\.json is for gfx942, not for gfx950"),
        (lambda data: data["kernels"][0].update(code_object="large"), "KeyError: 'large'"),
        (lambda data: data["kernels"][0]["figures"].pop("waves_per_simd"), "waves_per_simd"),
        (lambda data: data["kernels"][0]["figures"].update(speed=1), "'speed'"),
        (lambda data: data["kernels"][0]["resources"].update(vgprs=1), "'vgprs'"),
        (
            lambda data: data["kernels"][0]["arguments"]["fields"][0].update(type="float64"),
            "x: 'float64' is none of pointer, int32",
        ),
    ],
)
def test_a_catalogue_that_was_altered_is_refused(
    folder: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    alter(folder, change)
    with pytest.raises(CodeObjectError, match=message):
        catalogue(ARCH, folder)
