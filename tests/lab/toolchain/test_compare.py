"""The comparison of two builds sees each byte that the GPU executes, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hk_backend.kernels.catalogue import CODE_OBJECTS
from hk_backend.lab.toolchain import compare
from hk_backend.lab.toolchain.elf import Elf

SHIPPED = CODE_OBJECTS / "gfx950" / "gemm.co"
NAME = "gemm_bf16_256x256"


def compared(folder: Path, symbol: str, byte: int) -> int:
    """Compare a code object that ships with itself, one byte of a symbol inverted."""
    for build in ("old", "new"):
        (folder / build).mkdir()
        shutil.copy(SHIPPED, folder / build)
    path = folder / "new" / SHIPPED.name
    data = bytearray(path.read_bytes())
    offset, size = Elf(bytes(data)).place(symbol)
    data[offset + byte % size] ^= 0xFF
    path.write_bytes(data)
    return compare.main([str(folder / "old"), str(folder / "new")])


@pytest.mark.parametrize(
    ("symbol", "byte", "what"),
    [
        (NAME, 0, "instructions"),
        (NAME, -1, "instructions"),
        (f"{NAME}.kd", 0, "descriptor"),
        (f"{NAME}.kd", -1, "descriptor"),
    ],
)
def test_a_changed_byte_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], symbol: str, byte: int, what: str
) -> None:
    assert compared(tmp_path, symbol, byte) == 1
    assert capsys.readouterr().out.splitlines()[:-1] == [f"gfx950 {NAME}: {what}"]


@pytest.mark.parametrize(("symbol", "byte"), [(f"{NAME}_info", 0), (f"{NAME}.kd", 16)])
def test_kernel_information_and_places_do_not_count(tmp_path: Path, symbol: str, byte: int) -> None:
    assert compared(tmp_path, symbol, byte) == 0
