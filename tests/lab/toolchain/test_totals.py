"""The sums of two builds: what differs is counted, what both have is not named."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from hk_backend.kernels import catalogue
from hk_backend.kernels.catalogue import CODE_OBJECTS
from hk_backend.lab.toolchain import totals
from hk_backend.lab.toolchain.elf import Elf
from hk_backend.lab.toolchain.totals import RESOURCES, Totals

SHIPPED = CODE_OBJECTS / "gfx950" / "gemm.co"


def kernel(code: bytes, vgpr: int, **kinds: int) -> Totals:
    return Totals(code, Counter(kinds), dict.fromkeys(RESOURCES, 0) | {"vgpr": vgpr})


def test_what_changes_is_said_in_sum() -> None:
    old = {
        "a": kernel(b"1234", 100, v_mov_b32=3, s_nop=2),
        "b": kernel(b"12345678", 64, v_mov_b32=5, v_mul_f32=7),
        "same": kernel(b"1", 8, s_endpgm=1),
        "gone": kernel(b"1", 8),
    }
    new = {
        "a": kernel(b"12345678", 90, v_mov_b32=1, s_nop=2),
        "b": kernel(b"87654321", 70, v_mov_b32=7, v_mul_f32=7, v_readfirstlane_b32=1),
        "same": old["same"],
    }
    assert list(totals.report(old, new)) == [
        "3 kernels, 2 with other instructions; 1 in one build alone",
        "bytes of instructions: 13 -> 17 (+30.8%)",
        "vgpr: more in 1, fewer in 1; most in a: 100 -> 90",
        *(f"{what}: the same" for what in RESOURCES[1:]),
        "kinds of instructions that change most, in all kernels together:",
        "  v_mov_b32: 8 -> 8 (+0.0%), in 2 kernels",
        "  v_readfirstlane_b32: 0 -> 1 (new), in 1 kernels",
    ]


def test_what_ships_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One instruction of one kernel is overwritten by another: s_endpgm by s_nop."""
    for build in ("old", "new"):
        (tmp_path / build).mkdir()
        shutil.copy(SHIPPED, tmp_path / build)
    path, name = tmp_path / "new" / SHIPPED.name, "gemm_bf16_256x256"
    data = bytearray(path.read_bytes())
    offset, size = Elf(bytes(data)).place(name)
    end = data.rindex(bytes.fromhex("000081bf"), offset, offset + size)
    data[end : end + 4] = bytes.fromhex("000080bf")
    path.write_bytes(data)
    assert totals.main([str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    said = capsys.readouterr().out.splitlines()
    number = sum(entry.path.name == SHIPPED.name for entry in catalogue("gfx950").kernels)
    assert said[0] == f"{number} kernels, 1 with other instructions; 0 in one build alone"
    assert sorted(line.split(":")[0].strip() for line in said[-2:]) == ["s_endpgm", "s_nop"]


def test_the_registers_are_the_catalogues() -> None:
    from hk_backend.lab.toolchain import compiler

    found = totals.read(SHIPPED.parent, compiler.find())
    for entry in catalogue("gfx950").kernels:
        read = found[f"gfx950 {entry.name}"].resources
        assert (read["vgpr"], read["agpr"], read["spills"]) == (
            entry.vgpr,
            entry.agpr,
            entry.spills,
        )


def test_no_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert totals.main([str(tmp_path)]) == 2
    assert "no code objects" in capsys.readouterr().err
