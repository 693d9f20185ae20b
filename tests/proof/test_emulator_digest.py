"""An edit of the emulator changes the digests of the kernels that it concerns."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.proof.emulator_digest import EMULATOR, Sources

OPCODES = (
    *("v_add_f32", "v_div_fixup_f32", "v_cmp_lt_f32", "v_cmp_ge_i32", "s_cmp_lt_u32", "v_max_u32"),
    *("v_mfma_f32_32x32x16_bf16", "v_mfma_f32_32x32x16_fp8_fp8", "v_mfma_i32_32x32x16_i8"),
    *("s_addk_i32", "ds_read_b128", "buffer_load_dword"),
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(EMULATOR, tmp_path / "emulator")
    return tmp_path / "emulator"


def digests(folder: Path) -> dict[str, str]:
    found = Sources(folder)
    return {name: found.digest_of(name) for name in OPCODES} | {"all": found.common}


def changed(folder: Path, file: str, old: str, new: str) -> set[str]:
    """The opcodes whose digests an edit changes; "all" stands for every kernel's part."""
    before = digests(folder)
    path = folder / file
    text = path.read_text()
    assert old in text, f"{file} no longer has {old!r}"
    path.write_text(text.replace(old, new, 1))
    after = digests(folder)
    return {name for name in before if before[name] != after[name]}


FLOAT, COMPARE, MATRIX = (
    f"semantics/semantics_{name}.cpp" for name in ("vector_float", "vector_compare", "matrix")
)


@pytest.mark.parametrize(
    ("file", "old", "new", "concerned"),
    [
        (FLOAT, "return a + b; });", "return b + a + 0; });", {"v_add_f32"}),
        (FLOAT, "return division_fixed(a, b, c);", "return a;", {"v_div_fixup_f32"}),
        (COMPARE, "return a < b; });", "return a <= b; });", {"v_cmp_lt_f32"}),
        (MATRIX, 'add_16bit<Bf16>(all, "_bf16", arch);', "", {"v_mfma_f32_32x32x16_bf16"}),
        ("semantics/semantics_scalar.cpp", "return a < b; })", "return 0; })", {"s_cmp_lt_u32"}),
        ("isa/opcodes_vector.cpp", '"v_nop", "="', '"v_nop", "b32="', set()),
        ("memory/lds.cpp", "{", "{ ;", {"all"}),
        ("checks/waits.cpp", "{", "{ ;", {"all"}),
        ("timing/loop.cpp", "{", "{ ;", set()),
        (FLOAT, "// VALU arithmetic", "// Arithmetic", set()),
    ],
    ids=lambda value: value if isinstance(value, str) and value.endswith(".cpp") else "",
)
def test_an_edit_concerns(copy: Path, file: str, old: str, new: str, concerned: set[str]) -> None:
    assert changed(copy, file, old, new) == concerned


def test_a_helper_concerns_every_opcode_that_reaches_it(copy: Path) -> None:
    found = changed(copy, "semantics/lanes.hpp", "void finish(", "int finish(")
    assert {"v_add_f32", "v_div_fixup_f32"} <= found
    assert "s_addk_i32" not in found
    assert "all" not in found
