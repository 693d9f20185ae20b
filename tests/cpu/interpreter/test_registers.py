"""The interpreter leaves every register alone but its result, and the stack below the red zone."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.cpu import bochs
from tests.cpu.interpreter.native import Code
from tests.seed import draw

pytestmark = pytest.mark.x86_64

ZMM, MASKS, GENERAL = 32, 8, 14
"""rsp and rdi are not drawn: the stack, and where the registers are kept."""
NAMES = ["rax", "rcx", "rdx", "rbx", "rbp", "rsi", *(f"r{n}" for n in range(8, 16))]
MXCSR, FLAGS = 0xDFA5, 0x8D7
"""MXCSR: rounding up, flushing, three sticky flags. Flags: all that arithmetic sets."""


def source() -> str:
    """`run` loads all registers from memory, executes `vpdpbusd`, and stores all of them."""
    vectors = 64 * ZMM
    general = vectors + 8 * MASKS
    others = general + 8 * GENERAL
    load = [f"vmovups {64 * n}(%rdi), %zmm{n}" for n in range(ZMM)]
    load += [f"kmovq {vectors + 8 * n}(%rdi), %k{n}" for n in range(MASKS)]
    load += [f"ldmxcsr {others + 8}(%rdi)", f"mov {others + 16}(%rdi), %rax"]
    load += ["mov %rax, -8(%rsp)", "mov %rax, -128(%rsp)", f"push {others}(%rdi)", "popfq"]
    load += [f"mov {others + 16}(%rdi), %rax", "mov %rax, -8(%rsp)"]  # which push has overwritten
    load += [f"mov {general + 8 * n}(%rdi), %{name}" for n, name in enumerate(NAMES)]
    store = [f"mov %{name}, {general + 8 * n}(%rdi)" for n, name in enumerate(NAMES)]
    store += ["mov -8(%rsp), %rax", "mov -128(%rsp), %rcx", f"mov %rax, {others + 16}(%rdi)"]
    store += [f"mov %rcx, {others + 24}(%rdi)", "pushfq", f"pop {others}(%rdi)"]
    store += [f"stmxcsr {others + 8}(%rdi)"]
    store += [f"vmovups %zmm{n}, {64 * n}(%rdi)" for n in range(ZMM)]
    store += [f"kmovq %k{n}, {vectors + 8 * n}(%rdi)" for n in range(MASKS)]
    saved = ["rbx", "rbp", "r12", "r13", "r14", "r15"]
    lines = [f"push %{name}" for name in saved]
    lines += [*load, "vpdpbusd %zmm29, %zmm30, %zmm31", *store]
    lines += [*(f"pop %{name}" for name in reversed(saved)), "ret"]
    text = "\n".join(lines)
    return f'asm(R"(\n.text\n.globl run\nrun:\n{text}\n)");\n'


def test_everything_else_stays(processor: bochs.Processor) -> None:
    with tempfile.TemporaryDirectory() as folder:
        code = Code(source(), Path(folder))
    words = 8 * ZMM + MASKS + GENERAL + 4
    rng = draw("registers")
    before = np.array([rng.getrandbits(64) for _ in range(words)], np.uint64)
    red_zone = rng.getrandbits(64)
    before[-4:] = FLAGS, MXCSR, red_zone, red_zone
    after = before.copy()
    processor.call(code.address("run"), after.ctypes.data)
    changed = {int(n) for n in np.flatnonzero(after != before)}
    assert changed == set(range(8 * 31, 8 * 32))


FAULTS = {
    "ud2": r"exception 6: refused at .*: 0f 0b",
    "xor %eax, %eax; div %eax": "exception 0 ",
}


@pytest.mark.parametrize("instruction", FAULTS)
def test_a_fault_ends_the_call(instruction: str, processor: bochs.Processor) -> None:
    with tempfile.TemporaryDirectory() as folder:
        code = Code(f'asm(".globl run; run: {instruction}; ret");', Path(folder))
    with pytest.raises(RuntimeError, match=FAULTS[instruction]):
        processor.call(code.address("run"))
