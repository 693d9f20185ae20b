"""The built extension itself: the libraries that it links, and the places of its instructions."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

from hk_backend import _cpu
from tests.processes import finished, python

EXTENSION = Path(_cpu.__file__)


def test_it_links_neither_torch_nor_an_openmp_runtime() -> None:
    listing = finished("readelf", "-d", EXTENSION, check=True).stdout
    libraries = re.findall(r"\(NEEDED\).*\[(.+)\]", listing)
    assert libraries, "readelf listed nothing: this test would check nothing"
    foreign = [name for name in libraries if re.match(r"lib(torch|c10|gomp|omp|iomp)", name)]
    assert foreign == []


def test_one_openmp_runtime_in_the_process() -> None:
    """Importing and running HK in a fresh process maps no runtime that torch had not mapped."""
    script = """
import torch
def runtimes():
    with open("/proc/self/maps") as maps:
        return {line.split()[-1] for line in maps if any(
            name in line for name in ("libgomp", "libomp", "libiomp"))}
torch.ones(1 << 20).sum()
before = runtimes()
from hk_backend.ops import attention_prefill
x = torch.randn(512, 4, 64)
attention_prefill(x, x, x, query_start_loc=torch.tensor([0, 512], dtype=torch.int32))
assert before, "torch mapped no OpenMP runtime: this test would check nothing"
assert runtimes() == before, runtimes() - before
"""
    python("-c", script, check=True)


def test_available_instruction_sets_are_those_of_this_machine() -> None:
    line = re.search(r"^flags\s*:(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    flags = set(line[1].split()) if line else set()
    expected = ["portable"]
    if {"avx2", "fma", "f16c"} <= flags:
        expected.insert(0, "avx2")
    if {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= flags:
        expected.insert(0, "avx512")
        if "avx512_bf16" in flags:
            expected.insert(0, "avx512_bf16")
        if {"avx512_bf16", "amx_bf16", "amx_tile"} <= flags and not _cpu.why_no_amx():
            expected.insert(0, "amx")
    assert _cpu.available_isas() == expected


def test_the_tests_build_has_every_instruction_set() -> None:
    assert _cpu.left_out_isas() == []


def test_an_instruction_set_without_kernels_is_an_error() -> None:
    with pytest.raises(ValueError, match="isa: sse2 is not compiled into this build"):
        _cpu.read_bytes("sse2", 1, 0, 0)


def functions(stub: ast.Module) -> dict[str, int]:
    """How many arguments each function takes."""
    found = (each for each in stub.body if isinstance(each, ast.FunctionDef))
    return {each.name: len(each.args.posonlyargs) + len(each.args.args) for each in found}


def test_the_stub_has_every_argument() -> None:
    """pybind11 writes a signature into each docstring; only mypy reads the stub."""
    stub = functions(ast.parse(EXTENSION.with_name("_cpu.pyi").read_text()))
    made = [each for each in vars(_cpu).values() if inspect.isbuiltin(each)]
    signatures = [f"def {each.__doc__.splitlines()[0]}: ..." for each in made]
    assert stub == functions(ast.parse("\n".join(signatures)))


WIDE = {"avx512", "avx512_bf16", "amx"}
LEVELS_OF = {
    r"\t(v|k)[a-z]\w+ ": {"avx2", *WIDE},  # whatever VEX or EVEX encodes
    r"%zmm|%k[0-7]": WIDE,
    r"\tv(dpbf16|cvtne2?ps2bf16)": {"avx512_bf16", "amx"},
    r"%tmm|tilecfg|tilerelease": {"amx"},
}
"""Instructions, and the levels whose kernels may have them."""


def misplaced(code: str, pattern: str, levels: set[str]) -> tuple[int, set[str]]:
    """The number of instructions with the pattern in disassembled code, and the functions with one
    that are in the namespace of none of the levels."""
    function, count, found = "", 0, set()
    for line in code.splitlines():
        if line.endswith(">:"):
            function = line
        elif re.search(pattern, line):
            count += 1
            found.add(function)
    return count, {each for each in found if not levels & set(re.findall(r"hk::cpu::(\w+)", each))}


@pytest.fixture(scope="module")
def code() -> str:
    """The extension, disassembled."""
    return finished("objdump", "-d", "-C", "--no-show-raw-insn", EXTENSION, check=True).stdout


@pytest.mark.x86_64
@pytest.mark.parametrize("pattern", LEVELS_OF)
def test_instructions_stay_in_their_namespace(pattern: str, code: str) -> None:
    """An inline function compiled for AVX-512 and linked into common code would end the process
    of a machine without it."""
    levels = LEVELS_OF[pattern]
    count, found = misplaced(code, pattern, levels)
    compiled = any(f"hk::cpu::{level}::" in code for level in levels)
    assert count > 0 or not compiled, "no such code found: this test would check nothing"
    assert found == set()
