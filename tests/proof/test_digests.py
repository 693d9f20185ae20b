"""Digests of records follow what a proof depends on, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from hk_backend.kernels import KernelEntry, catalogue
from hk_backend.lab.toolchain.elf import Elf
from tests.kernels.test_gemm_mutants import entry_with
from tests.proof import product_digest
from tests.proof import source_digest as digests
from tests.proof.emulator_digest import EMULATOR, Sources
from tests.proof.kernel_digest import instructions, kernel_digest

MODULES = {
    "__init__.py": "",
    "conftest.py": "import pytest\n\n@pytest.fixture\ndef tool():\n    return 1\n",
    "star.py": "def from_star():\n    return 3\n",
    "part.py": (
        "from sample.star import *\n"
        "LIMIT = 3\n"
        "class Base:\n    def method(self):\n        return LIMIT\n"
        "def used(x: Base):\n    return from_star()\n"
        "def unused():\n    return 0\n"
    ),
    "late.py": "def late():\n    return 4\n",
    "test_it.py": (
        "from sample import part\n"
        "def test_it(tool):\n"
        '    """About it."""\n'
        "    from sample.late import late\n"
        "    part.used(None)  # a comment\n"
        "    late()\n"
        "def test_other():\n    part.unused()\n"
    ),
}
PRODUCT = {
    "hk_vllm/__init__.py": "",
    "hk_vllm/plugin.py": "def go():\n    from hk_backend.routing import routes\n    routes()\n",
    "hk_backend/__init__.py": "",
    "hk_backend/routing.py": (
        '"""Routes."""\nfrom hk_backend.terms import LIMIT\n'
        "def routes():\n    return LIMIT  # all\n"
        'def run(name):\n    part("devices.cpu", name).run()\n'
    ),
    "hk_backend/devices/cpu/scale.py": "def run():\n    return 7\n",
    "hk_backend/terms.py": "LIMIT = 3\n",
    "hk_backend/limits.json": "{}",
    "hk_backend/cli.py": "from hk_backend.routing import routes\n",
    "csrc/cpu/linear.cpp": "int rows() { return 3; }  // all\n",
    "csrc/emulator/wave.cpp": "int wave() { return 64; }\n",
}


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    forget()


def forget() -> None:
    cached = ("source_digest", "reached", "_references", "_table", "path_of", "_tree", "_meaning")
    for name in cached:
        getattr(digests, name).cache_clear()
    product_digest.product_digest.cache_clear()


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, f"{path.name} no longer has {old!r}"
    path.write_text(text.replace(old, new, 1))
    forget()


@pytest.mark.parametrize(
    ("file", "old", "new", "matters"),
    [
        ("test_it.py", "late()\n", "late() + 1\n", True),
        ("conftest.py", "return 1", "return 2", True),
        ("star.py", "return 3", "return 5", True),
        ("part.py", "LIMIT = 3", "LIMIT = 4", True),
        ("part.py", "return LIMIT", "return -LIMIT", True),
        ("late.py", "return 4", "return 6", True),
        ("test_it.py", "# a comment", "# another", False),
        ("test_it.py", "About it.", "About it all.", False),
        ("test_it.py", "part.unused()", "part.unused", False),
        ("part.py", "return 0", "return 1", False),
        ("part.py", "LIMIT = 3\n", "LIMIT = 3\n\n\n", False),
    ],
)
def test_a_change_matters_where_a_test_reaches_it(
    file: str, old: str, new: str, matters: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, MODULES)
    forget()
    monkeypatch.setattr(digests, "PACKAGES", {"sample": tmp_path})
    before = digests.source_digest("sample.test_it", "test_it")
    change(tmp_path / file, old, new)
    assert (digests.source_digest("sample.test_it", "test_it") != before) == matters


def test_proofs_of_kernels_do_not_hang_on_the_devices() -> None:
    """An edit of a planner or of a device invalidates no record of a kernel's arithmetic."""
    found = digests.reached("tests.kernels.test_attention_window", "test_windows_within_one_tile")
    modules = {each.module for each in found}
    assert "tests.ops.oracle" in modules
    assert not {name for name in modules if name.startswith("hk_backend.devices")}


@pytest.mark.parametrize(
    ("file", "old", "new", "matters"),
    [
        ("hk_vllm/plugin.py", "routes()\n", "routes() + 1\n", True),
        ("hk_backend/routing.py", "return LIMIT", "return -LIMIT", True),
        ("hk_backend/terms.py", "3", "4", True),
        ("hk_backend/devices/cpu/scale.py", "7", "8", True),
        ("hk_backend/limits.json", "{}", "[]", True),
        ("csrc/cpu/linear.cpp", "3", "4", True),
        ("hk_backend/routing.py", "Routes.", "All routes.", False),
        ("hk_backend/routing.py", "# all", "# every one", False),
        ("hk_backend/cli.py", "routes\n", "routes as all_routes\n", False),
        ("csrc/cpu/linear.cpp", "// all", "// every one", False),
        ("csrc/emulator/wave.cpp", "64", "32", False),
    ],
)
def test_a_change_matters_if_an_engine_serves_it(
    file: str, old: str, new: str, matters: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, PRODUCT)
    packages = {name: tmp_path / name for name in ("hk_vllm", "hk_backend")}
    forget()
    monkeypatch.setattr(digests, "PACKAGES", packages)
    monkeypatch.setattr(product_digest, "CSRC", tmp_path / "csrc")
    before = product_digest.product_digest("vllm")
    change(tmp_path / file, old, new)
    assert (product_digest.product_digest("vllm") != before) == matters


BF16, F16 = (catalogue("gfx950").kernel(f"gemm_{type}_128x64") for type in ("bf16", "f16"))


def test_no_two_kernels_that_differ_share_one() -> None:
    """Twins of two types share a digest only without types."""
    assert kernel_digest(BF16) != kernel_digest(F16)
    assert kernel_digest(BF16, with_types=False) == kernel_digest(F16, with_types=False)
    kernels = catalogue("gfx950").kernels
    by_digest = {kernel_digest(entry): entry for entry in kernels}
    same = [entry for entry in kernels if by_digest[kernel_digest(entry)] != entry]
    assert all(instructions(e) == instructions(by_digest[kernel_digest(e)]) for e in same)
    assert len(by_digest) > len(kernels) / 2


def test_what_matters_of_a_kernel(tmp_path: Path) -> None:
    """The launch, the code and its descriptor matter; the name does not."""

    def flipped(symbol: str, offset: int) -> KernelEntry:
        code = bytearray(BF16.code_object())
        code[Elf(bytes(code)).place(BF16.symbol + symbol)[0] + offset] ^= 1
        return entry_with(BF16, bytes(code), tmp_path / f"{BF16.name}{symbol}.hsaco")

    assert kernel_digest(replace(BF16, name="another")) == kernel_digest(BF16)
    others = (
        replace(BF16, block=BF16.block // 2),
        replace(BF16, dynamic_lds=BF16.dynamic_lds + 16),
        flipped("", 64),
        flipped(".kd", 48),
    )
    assert kernel_digest(BF16) not in map(kernel_digest, others)


OPCODES = (
    *("v_add_f32", "v_div_fixup_f32", "v_cmp_lt_f32", "v_cmp_ge_i32", "s_cmp_lt_u32", "v_max_u32"),
    *("v_mfma_f32_32x32x16_bf16", "v_mfma_f32_32x32x16_fp8_fp8", "v_mfma_i32_32x32x16_i8"),
    *("v_smfmac_f32_16x16x64_bf16", "v_smfmac_i32_16x16x64_i8"),
    *("s_addk_i32", "ds_read_b128", "buffer_load_dword"),
)
FLOAT, COMPARE, MATRIX, SPARSE = (
    f"semantics/semantics_{name}.cpp"
    for name in ("vector_float", "vector_compare", "matrix", "matrix_sparse")
)
SPARSE_OPCODES = {name for name in OPCODES if name.startswith("v_smfmac_")}


@pytest.mark.parametrize(
    ("file", "old", "new", "concerned"),
    [
        (FLOAT, "return a + b; });", "return b + a + 0; });", {"v_add_f32"}),
        (FLOAT, "return division_fixed(a, b, c);", "return a;", {"v_div_fixup_f32"}),
        (COMPARE, "return a < b; });", "return a <= b; });", {"v_cmp_lt_f32"}),
        (MATRIX, 'add_16bit<Bf16>(all, "_bf16", arch);', "", {"v_mfma_f32_32x32x16_bf16"}),
        (SPARSE, "add_sparse_types<I8, I8>", "", {"v_smfmac_i32_16x16x64_i8"}),
        (SPARSE, "place / 2 * 4", "place / 2 * 2", SPARSE_OPCODES),
        ("machine/prepared.cpp", "iter_swap(p.reads + 2", "iter_swap(p.reads", SPARSE_OPCODES),
        ("semantics/semantics_scalar.cpp", "return a < b; })", "return 0; })", {"s_cmp_lt_u32"}),
        ("isa/opcodes_vector.cpp", '"v_nop", "="', '"v_nop", "b32="', set()),
        ("memory/lds.cpp", "{", "{ ;", {"all"}),
        ("checks/waits.cpp", "{", "{ ;", {"all"}),
        ("timing/loop.cpp", "{", "{ ;", set()),
        (FLOAT, "// VALU arithmetic", "// Arithmetic", set()),
        ("semantics/lanes.hpp", "void finish(", "int finish(", None),
    ],
    ids=lambda value: value if isinstance(value, str) and value.endswith("pp") else "",
)
def test_an_edit_of_the_emulator_concerns(
    file: str, old: str, new: str, concerned: set[str] | None, tmp_path: Path
) -> None:
    """`concerned`: the opcodes whose digest changes; "all" stands for every kernel's part; None for
    a helper, which concerns those that reach it."""
    folder = Path(shutil.copytree(EMULATOR, tmp_path / "emulator"))

    def found() -> dict[str, str]:
        sources = Sources(folder)
        return {name: sources.digest_of(name) for name in OPCODES} | {"all": sources.common}

    before = found()
    change(folder / file, old, new)
    after = found()
    changed = {name for name in before if before[name] != after[name]}
    if concerned is None:
        assert {"v_add_f32", "v_div_fixup_f32"} <= changed
        assert not {"s_addk_i32", "all"} & changed
    else:
        assert changed == concerned


def test_an_opcode_that_the_emulator_lacks_changes_no_other_digest() -> None:
    found = Sources(EMULATOR)
    known = found.mnemonics
    assert found.of("v_unheard_of") == ()
    assert found.mnemonics == known
