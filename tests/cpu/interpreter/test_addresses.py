"""Memory operands of every form, executed: base, index, scale, displacement, rip and rsp."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.cpu import bochs
from tests.cpu.interpreter import semantics
from tests.cpu.interpreter.native import Code
from tests.seed import draw

pytestmark = pytest.mark.x86_64

BASE, INDEX = 1024, 24
"""rsi points so many bytes into the data, rdx holds the index."""
OPERANDS = {
    "(%rsi)": 0,
    "64(%rsi)": 64,
    "-64(%rsi)": -64,
    "3(%rsi)": 3,
    "(%rsi,%rdx)": INDEX,
    "8(%rsi,%rdx,8)": 8 + 8 * INDEX,
    "-128(%rsi,%r9,4)": -128 + 4 * INDEX,
    "64(,%r8)": 64,
    "64(%r13,%r12,2)": 64 + 2 * INDEX,
    "-64(%rsp)": -64,
    "data(%rip)": 0,
    "data+64(%rip)": 64,
}
"""Operands, and the byte from the base on to which each leads."""


def function(number: int, operand: str) -> str:
    """`vpdpbusd (%rdi), ones, operand`; the stack pointer holds the base, too."""
    return f"""
.globl f{number}
f{number}:
  push %r12; push %r13; mov %rsp, %rax
  mov %rsi, %r8; mov %rsi, %r13; mov %rsi, %rsp; mov %rdx, %r9; mov %rdx, %r12
  vpxord %zmm0, %zmm0, %zmm0
  vpternlogd $255, %zmm1, %zmm1, %zmm1; vpabsb %zmm1, %zmm1
  vpdpbusd {operand}, %zmm1, %zmm0
  vmovups %zmm0, (%rdi)
  mov %rax, %rsp; pop %r13; pop %r12
  ret
"""


@pytest.fixture(scope="module")
def data() -> bytes:
    return draw("addresses").randbytes(2 * BASE)


@pytest.fixture(scope="module")
def code(data: bytes) -> Code:
    functions = "".join(function(*each) for each in enumerate(OPERANDS))
    constants = ",".join(str(byte) for byte in data[BASE : BASE + 128])
    with tempfile.TemporaryDirectory() as folder:
        return Code(f'asm(R"({functions}\ndata: .byte {constants}\n)");', Path(folder))


@pytest.mark.parametrize("operand", OPERANDS)
def test_an_operand(operand: str, data: bytes, code: Code, processor: bochs.Processor) -> None:
    memory, sums = np.frombuffer(data, np.uint8), np.empty(16, np.uint32)
    number, base = list(OPERANDS).index(operand), memory.ctypes.data + BASE
    processor.call(code.address(f"f{number}"), sums.ctypes.data, base, INDEX)
    start = BASE + OPERANDS[operand]
    read = np.frombuffer(data[start : start + 64], np.uint32)
    ones = 0x01010101
    stated = [semantics.integer_dot(0, ones, int(x), signed=(False, True)) for x in read]
    assert sums.tolist() == stated
