"""The interpreter's decoder against LLVM's disassembler, over generated encodings."""

from __future__ import annotations

import re
import subprocess

import pytest

from hk_backend.kernels.toolchain import compiler
from tests.cpu.interpreter.encode import TILES, VECTORS, instruction
from tests.cpu.interpreter.library import Instruction, Interpreter
from tests.seed import draw

pytestmark = pytest.mark.x86_64

COUNT = 1500
GENERAL = ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi"]
GENERAL += [*(f"r{n}" for n in range(8, 16)), "rip"]
NONE = -1


def llvm(codes: list[bytes]) -> list[str]:
    """LLVM's text of each; empty where it knows none."""
    lines = ["[" + ",".join(map(hex, code)) + "]" for code in codes]
    options = ("--disassemble", "--triple=x86_64", "--mcpu=sapphirerapids")
    marked = "\n".join(f"{line}\n[0x90]" for line in lines)  # a nop ends each
    command = [compiler.find().tool("llvm-mc"), *options]  # fails where it knows one of them not
    done = subprocess.run(command, input=marked, capture_output=True, text=True, check=False)
    printed = done.stdout.split("\tnop\n")
    assert len(printed) == len(codes) + 1
    return [clean(each) for each in printed[:-1]]


def clean(printed: str) -> str:
    """One line without the directive `.text`, and without the index `riz`, which is none."""
    line = re.sub(r"\s+", " ", printed.replace(".text", "")).strip()
    line = re.sub(r" \(,%riz(,\d)?\)", " 0", line)  # the address 0
    return re.sub(r"\(,%riz(,\d)?\)|,%riz(,\d)?", "", line)


def text(found: Instruction, name: str) -> str:
    """The instruction as LLVM writes it (AT&T)."""
    if found.vector_bytes:
        return vector_text(found, name)
    destination, first, second = (
        f"%tmm{n}" for n in (found.destination, found.first, found.second)
    )
    operands = {
        "tilerelease": [],
        "tilezero": [destination],
        "ldtilecfg": [address(found)],
        "sttilecfg": [address(found)],
        "tileloadd": [address(found), destination],
        "tileloaddt1": [address(found), destination],
        "tilestored": [destination, address(found)],
    }.get(name, [first, second, destination])
    return f"{name} {', '.join(operands)}".strip()


def vector_text(found: Instruction, name: str) -> str:
    bank = {16: "x", 32: "y", 64: "z"}[found.vector_bytes]
    narrow = name == "vcvtneps2bf16"
    target = {16: "x", 32: "x", 64: "y"}[found.vector_bytes] if narrow else bank
    operands = [f"%{bank}mm{found.second}"]
    if found.memory:
        lanes = found.vector_bytes // 4
        operands = [address(found) + f"{{1to{lanes}}}" * found.broadcast]
    if not narrow:
        operands.append(f"%{bank}mm{found.first}")
    suffix = f" {{%k{found.mask}}}" * (found.mask > 0) + " {z}" * found.zeroing
    operands.append(f"%{target}mm{found.destination}{suffix}")
    if narrow and found.memory and not found.broadcast and found.vector_bytes < 64:
        name += bank  # the operands do not tell the length
    return f"{name} {', '.join(operands)}"


def address(found: Instruction) -> str:
    number = str(found.displacement) if found.displacement else ""
    base = f"%{GENERAL[found.base]}" if found.base != NONE else ""
    if found.index != NONE:
        scale = f",{1 << found.shift}" if found.shift else ""
        return f"{number}({base},%{GENERAL[found.index]}{scale})"
    return f"{number}({base})" if base else str(found.displacement)


@pytest.mark.parametrize("name", [*VECTORS, *TILES])
def test_operands(name: str, interpreter: Interpreter) -> None:
    rng = draw(name)
    codes = [instruction(rng, name) for _ in range(COUNT)]
    seen = 0
    for code, expected in zip(codes, llvm(codes), strict=True):
        found = interpreter.decode(code)
        if found is None:
            assert refused(code, expected), f"{code.hex(' ')} is {expected}"
            continue
        assert found.length == len(code), code.hex(" ")
        assert text(found, interpreter.name(found)) == expected, code.hex(" ")
        seen += expected.startswith(name)
    assert seen > COUNT // 2


def refused(code: bytes, expected: str) -> bool:
    """Whether the interpreter is right to refuse what LLVM reads so.

    LLVM knows other instructions, and registers of APX. It accepts a tile twice, a vector length
    of 3 and zeroing without a mask, where a processor faults. The interpreter wants a stride for
    tiles.
    """
    evex = code[0] == 0x62
    apx = evex and (code[1] & 8 or not code[2] & 4)
    no_length = evex and code[3] & 0x60 == 0x60
    no_mask = evex and code[3] & 0x87 == 0x80
    mnemonic = expected.partition(" ")[0].rstrip("xy")
    tiles = re.findall(r"%tmm\d", expected)
    no_stride = mnemonic.startswith(("tileload", "tilestore")) and not re.search(r",%r", expected)
    other = mnemonic not in {*VECTORS, *TILES}
    return bool(apx or no_length or no_mask or other or no_stride or len(set(tiles)) < len(tiles))


def test_other_code_is_refused(interpreter: Interpreter) -> None:
    rng = draw("other code")
    for _ in range(2000):
        code = bytes([rng.choice([*range(0x62), *range(0x63, 0xC4), *range(0xC5, 256)])])
        assert interpreter.decode(code + rng.randbytes(14)) is None
