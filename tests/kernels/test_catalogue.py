"""The catalogue's loading side: an entry's code object is the one that was built, or a clear
error."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hk_backend.kernels import (
    CodeObjectError,
    Fact,
    KernelEntry,
    NoKernel,
    catalogue,
)
from hk_backend.kernels.catalogue import CODE_OBJECTS
from hk_backend.kernels.entry import code_object_arch
from hk_backend.lab.toolchain import build
from hk_backend.lab.toolchain.compiler import Toolchain
from tests.kernels.catalogues import with_kernels
from tests.kernels.sources import ARCH, Source, write


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tools: Toolchain) -> Path:
    root = write(tmp_path_factory.mktemp("tree"), Source())
    build.build(ARCH, root / "out" / ARCH, tools, root=root)
    return root / "out"


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    """A copy of the catalogue's folder, to be damaged."""
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
    assert entry.grid == "measure"
    assert entry.line_tables().startswith(b"\x7fELF")
    assert catalogue("gfx950:sramecc+:xnack-", built).arch == ARCH


@pytest.mark.parametrize("kept", [None, 0, 100], ids=["missing", "empty", "cut"])
def test_line_tables_that_cannot_be_read_are_empty(folder: Path, kept: int | None) -> None:
    entry = small(folder)
    data = entry.lines.read_bytes()
    if kept is None:
        entry.lines.unlink()
    else:
        entry.lines.write_bytes(data[:kept])
    assert entry.line_tables() == b""


def test_unknown_names_list_what_there_is(built: Path) -> None:
    with pytest.raises(CodeObjectError, match="no kernels for 'gfx90a'; arches: gfx950"):
        catalogue("gfx90a", built)
    with pytest.raises(KeyError, match="no kernel 'big' for gfx950; of 1 the nearest: small"):
        catalogue(ARCH, built).kernel("big")


def test_a_kernel_is_selected_by_its_facts() -> None:
    known = catalogue("gfx950")
    for entry in known.kernels:
        found = known.alternatives(entry.operator, **entry.facts)
        assert not isinstance(found, NoKernel)
        assert entry in found
        assert all(each.facts == entry.facts for each in found)
    facts = {"keys": "paged", "stored": "f16", "dtype": "f16", "head_size": 64, "mask": "none"}
    paged = known.select("attention_prefill", **facts)
    assert isinstance(paged, KernelEntry)
    assert paged.symbol == "attention_prefill_f16_d64_paged"


@pytest.mark.parametrize(
    ("facts", "refusal"),
    [
        ({"dtype": "f32", "head_size": 7}, NoKernel("dtype", "f32", ("bf16", "f16"))),
        ({"dtype": "bf16", "head_size": 96}, NoKernel("head_size", 96, (64, 128, 256))),
        ({"head_size": 96, "dtype": "f32"}, NoKernel("head_size", 96, (64, 128, 256))),
    ],
)
def test_the_first_fact_that_leaves_none_is_named(
    facts: dict[str, Fact], refusal: NoKernel
) -> None:
    assert catalogue("gfx950").select("attention_prefill", **facts) == refusal


def test_alternatives_come_with_the_largest_tile_first() -> None:
    known = catalogue("gfx950")
    whole = known.kernel("gemm_bf16_256x256")
    shipped = known.alternatives("gemm", **whole.facts)
    assert isinstance(shipped, tuple)
    sizes = [entry.tile.rows * entry.tile.columns for entry in shipped]
    assert shipped[0] == whole
    assert len(sizes) > 1
    assert sizes == sorted(sizes, reverse=True)
    small, large = (
        replace(whole, name=name, tile=replace(whole.tile, rows=rows))
        for name, rows in (("small", 16), ("large", 512))
    )
    with_all = with_kernels(known, small, large)
    assert with_all.alternatives("gemm", **whole.facts) == (large, *shipped, small)
    names = f"large, {', '.join(entry.name for entry in shipped)}, small"
    with pytest.raises(ValueError, match=rf"several kernels: {names}$"):
        with_all.select("gemm", **whole.facts)
    there = ("bf16", "e2m1", "e2m3", "e3m2", "e4m3", "f16")
    assert with_all.alternatives("gemm", a="f32") == NoKernel("a", "f32", there)


def test_an_operator_without_kernels() -> None:
    refusal = catalogue("gfx950").select("convolution", dtype="bf16")
    assert refusal == NoKernel(
        "operator",
        "convolution",
        (
            "attention_decode",
            "attention_merge",
            "attention_prefill",
            "gemm",
            "quantize_fp8",
            "quantize_mx",
        ),
    )


def test_facts_that_select_nothing_are_errors() -> None:
    known = catalogue("gfx950")
    with pytest.raises(ValueError, match="gemm has no fact 'dtype'; there are: a, b, scales"):
        known.select("gemm", dtype="bf16")
    for find in (known.select, known.alternatives):
        with pytest.raises(
            ValueError, match="several kernels: gemm_bf16_256x256, gemm_f16_256x256"
        ):
            find("gemm")


def test_an_index_is_read_when_its_operator_is_asked_for(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(CODE_OBJECTS, tmp_path / "copy"))
    (folder / ARCH / "gemm.json").write_text("damaged")
    known = catalogue(ARCH, folder)
    assert known.alternatives(
        "attention_prefill", keys="split", stored="e4m3", dtype="bf16", head_size=64, mask="none"
    )
    with pytest.raises(CodeObjectError, match=r"gemm\.json is damaged"):
        known.select("gemm")


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


def alter(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / ARCH / "test.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda data: data.update(arch="gfx942"),
            r"test\.json is of test for gfx942, not of test for",
        ),
        (
            lambda data: data.update(operator="gemm"),
            r"test\.json is of gemm for gfx950, not of test",
        ),
        (lambda data: data["code_objects"]["small"].pop("size"), "KeyError: 'size'"),
        (lambda data: data["code_objects"].update(small=1), "TypeError"),
        (lambda data: data["shared"]["figures"].pop("waves_per_simd"), "waves_per_simd"),
        (lambda data: data["shared"]["figures"].update(speed=1), "'speed'"),
        (lambda data: data["shared"].update(vgprs=1), "'vgprs'"),
        (lambda data: data["shared"].update(arguments=1), "IndexError"),
        (
            lambda data: data["structs"][0]["fields"][0].update(type="float64"),
            "x: 'float64' is not one of pointer, int32",
        ),
    ],
)
def test_an_index_that_was_altered_is_refused(
    folder: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    alter(folder, change)
    with pytest.raises(CodeObjectError, match=message):
        small(folder)


def test_fp16_follows_from_bf16() -> None:
    """Every kernel for bf16 has a twin for fp16 with the same bars, and the other way round.

    Without twins are those of MX weights, whose range float16 lacks.
    """
    kernels = catalogue("gfx950").kernels
    bars = {e.name: e.bars for e in kernels if e.facts.get("scales") != "mx_weights"}
    of_bf16 = {name: each for name, each in bars.items() if "bf16" in name}
    of_fp16 = {name: each for name, each in bars.items() if "f16" in name and name not in of_bf16}
    assert {name.replace("bf16", "f16"): each for name, each in of_bf16.items()} == of_fp16
