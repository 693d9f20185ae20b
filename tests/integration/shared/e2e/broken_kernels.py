"""Catalogues of broken kernels, each broken in its way, for the device that the engine makes next.

They are copies of the shipped catalogue with changed machine words (CDNA3 ISA guide, "Microcode
Formats": VOP1 and SOPP).
"""

from __future__ import annotations

import atexit
import hashlib
import json
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

ARCH = "gfx950"
Change = Callable[[int], int]

EXP, SIN = 0x20, 0x29
"""v_exp_f32 and v_sin_f32: opcodes of VOP1, which begins with 0111111 and has them in bits 9-16."""


def one_wrong_exponential() -> Path:
    """Make a catalogue with one wrong exponential, and the file's right hash; return its folder."""

    def sine(word: int) -> int:
        return word & ~(0xFF << 9) | SIN << 9

    return changed_copy("v_exp_f32", sine, first_only=True, hashed=True)


def changed_copy(mnemonic: str, change: Change, *, first_only: bool, hashed: bool) -> Path:
    """Copy the catalogue, and change the instructions `mnemonic` of every attention kernel.

    Returns the copy's folder.
    """
    from hk_backend.kernels.catalogue import CODE_OBJECTS

    parent = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, parent)
    folder = parent / "codeobjects"
    # line tables belong to the unchanged code
    shutil.copytree(CODE_OBJECTS, folder, ignore=shutil.ignore_patterns("*.lines"))
    listed = folder / ARCH / "attention_prefill.json"
    content = json.loads(listed.read_text())
    for name, file in content["code_objects"].items():
        path = folder / ARCH / f"{name}.co"
        data = bytearray(path.read_bytes())
        for symbol in file["kernels"]:
            places = list(instructions(bytes(data), symbol, mnemonic))
            for at in places[:1] if first_only else places:
                (word,) = struct.unpack_from("<I", data, at)
                struct.pack_into("<I", data, at, change(word))
        path.write_bytes(data)
        if hashed:
            file["sha256"] = hashlib.sha256(data).hexdigest()
    listed.write_text(json.dumps(content))
    return folder


def instructions(code_object: bytes, symbol: str, mnemonic: str) -> Iterator[int]:
    """Offsets of the instructions `mnemonic` of a kernel in its file."""
    from hk_backend import _emulator
    from hk_backend.lab.toolchain.elf import Elf

    elf = Elf(code_object)
    begin, _ = elf.place(symbol)
    for pc, instruction in _emulator.disassemble(elf.symbol_bytes(symbol), ARCH):
        if instruction.startswith(mnemonic):
            yield begin + pc
