"""LLVM's own disassembler, the standard of the emulator's decoder.

It runs in a process of its own, since some words that are no instruction (reserved SDWA selectors)
crash it: as a program, this module reads one case a line and writes its answer.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import json
import re
import struct
import sys
from collections.abc import Iterable, Sequence

from tests.emulator.assembly import MC, TRIPLE
from tests.models import ROOT
from tests.processes import finished, python

Answer = tuple[int, str] | None  # (bytes, text), None if LLVM knows no instruction there


@functools.cache
def library() -> ctypes.CDLL:
    """libLLVM 22 with its AMDGPU target."""
    for path in ("libLLVM.so.22.1", *sorted(glob.glob("/usr/lib/llvm-22/lib/libLLVM*.so*"))):
        try:
            llvm = ctypes.CDLL(path)
        except OSError:
            continue
        for part in ("TargetInfo", "TargetMC", "Disassembler"):
            getattr(llvm, f"LLVMInitializeAMDGPU{part}")()
        llvm.LLVMCreateDisasmCPU.restype = ctypes.c_void_p
        llvm.LLVMDisasmInstruction.restype = ctypes.c_size_t
        llvm.LLVMDisasmInstruction.argtypes = [
            ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p,
            ctypes.c_size_t,
        ]  # fmt: skip
        return llvm
    raise OSError("libLLVM 22 is not installed: nothing to compare the decoder with")


def disassemble(cases: Sequence[Sequence[int]], arch: str) -> list[Answer]:
    """Returns the instruction that LLVM reads at the first word of each case."""
    answers: list[Answer] = []
    while len(answers) < len(cases):
        text = "\n".join(" ".join(f"{w:x}" for w in words) for words in cases[len(answers) :])
        done = python("-m", "tests.emulator.llvm", arch, input=text, cwd=ROOT)
        lines = done.stdout.splitlines()
        answers += [_answer(line) for line in lines]
        if done.returncode < 0:
            answers.append(None)  # the case that it did not survive
        else:
            assert done.returncode == 0, done.stderr
    return answers[: len(cases)]


def _answer(line: str) -> Answer:
    size, printed = json.loads(line)
    # /*Invalid register, operand has no register class*/: no assembler would make it
    return (size, normal(printed)) if size and "/*" not in printed else None


def assemble(texts: Iterable[str], arch: str) -> dict[str, list[int]]:
    """The words of each instruction that LLVM's assembler accepts."""
    lines, rejected = sorted(set(texts)), set()
    for _ in range(2):
        lines = [line for i, line in enumerate(lines, 1) if i not in rejected]
        done = finished(*MC, f"-mcpu={arch}", "-show-encoding", input="\n".join(lines))
        rejected = {int(n) for n in re.findall(r"^<stdin>:(\d+):", done.stderr, re.M)}
    assert not rejected, done.stderr
    encodings = re.findall(r"encoding: \[(.*?)\]", done.stdout)
    words = [bytes(int(byte, 16) for byte in encoding.split(",")) for encoding in encodings]
    return {
        line: list(struct.unpack(f"<{len(data) // 4}I", data))
        for line, data in zip(lines, words, strict=True)
    }


def normal(text: str) -> str:
    """The text without comments, every run of white space made one blank."""
    return " ".join(re.sub(r"//.*|;.*", "", text).split())


def main() -> None:
    llvm, text = library(), ctypes.create_string_buffer(512)
    context = llvm.LLVMCreateDisasmCPU(TRIPLE.encode(), sys.argv[1].encode(), None, 0, None, None)
    for line in sys.stdin:
        words = [int(word, 16) for word in line.split()]
        data = struct.pack(f"<{len(words)}I", *words)
        size = llvm.LLVMDisasmInstruction(context, data, len(data), 0, text, len(text))
        print(json.dumps((size, text.value.decode())), flush=True)


if __name__ == "__main__":
    main()
