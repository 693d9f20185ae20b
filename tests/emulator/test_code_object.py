"""Files that are no code object, or a damaged one, raise a LoadError that says why."""

from __future__ import annotations

import contextlib
import io
import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from hk_backend import _emulator
from hk_backend.lab.toolchain.elf import Elf
from tests.emulator.assembly import PROLOGUE, assemble

STORE = PROLOGUE + "global_store_dword v1, v0, s[6:7]"


@pytest.fixture(scope="module")
def code() -> bytes:
    return assemble(STORE)


def load(data: bytes | bytearray, lines: bytes = b"") -> _emulator.CodeObject:
    return _emulator.CodeObject.load(bytes(data), lines)


def sections(elf: bytes) -> Iterator[tuple[str, str, int, int]]:
    """(name, type, offset, size) of each section."""
    for section in ELFFile(io.BytesIO(elf)).iter_sections():
        yield section.name, section["sh_type"], section["sh_offset"], section["sh_size"]


def test_what_a_kernel_says_of_itself() -> None:
    code = assemble(STORE, arch="gfx942", lds=512, scratch=64, vgprs=96, accum_offset=64, sgprs=40)
    kernel = load(code).kernel("k")
    assert (kernel.name, kernel.arch) == ("k", "gfx942")
    assert (kernel.static_lds, kernel.scratch, kernel.kernarg_size) == (512, 64, 16)
    assert (kernel.vgprs, kernel.agprs, kernel.sgprs) == (64, 32, 48)
    assert (kernel.max_block, kernel.entry) == (1024, 0)
    assert [(a.kind, a.offset, a.size) for a in kernel.arguments] == [
        ("global_buffer", 0, 8),
        ("global_buffer", 8, 8),
    ]


def test_truncated_anywhere(code: bytes) -> None:
    ends = {0, 1, 3, 4, 16, 40, 63, 64, len(code) - 1}
    for _, _, offset, size in sections(code):
        end = offset + size
        ends |= {offset - 1, offset, offset + 1, end - 1, end}
    random = Random(0)
    ends |= {random.randrange(len(code)) for _ in range(200)}
    for end in ends:
        if 0 <= end < len(code):
            with pytest.raises(_emulator.LoadError):
                load(code[:end])


def damaged(code: bytes, offsets: range, random: Random) -> tuple[int, int]:
    """The number of files with one wrong byte that were refused, and that were not."""
    refused = accepted = 0
    for offset in offsets:
        broken = bytearray(code)
        broken[offset] ^= random.choice([1, 0x80, 0xFF, random.randrange(1, 256)])
        try:
            load(broken)
        except _emulator.LoadError:
            refused += 1
        else:
            accepted += 1
    return refused, accepted


def test_flipped_bytes_are_refused_or_read_and_nothing_else(code: bytes) -> None:
    random = Random(1)
    table = struct.unpack_from("<Q", code, 40)[0]
    header, _ = damaged(code, range(64), random)
    headers, _ = damaged(code, range(table, len(code)), random)
    found = {
        name: damaged(code, range(offset, offset + size), random)[0]
        for name, kind, offset, size in sections(code)
        if kind not in ("SHT_NULL", "SHT_NOBITS")
    }
    assert header > 20
    assert headers > 50
    assert found[".note"] > 50
    assert found[".rodata"] > 0  # the descriptor's entry point
    assert found[".text"] == 0  # instructions are judged when they are reached


def patched(code: bytes, offset: int, data: bytes) -> bytes:
    return code[:offset] + data + code[offset + len(data) :]


def test_what_is_not_a_code_object(code: bytes) -> None:
    for data in (b"", b"ELF", b"\x7fELF", b"#!/bin/sh\n", bytes(1000)):
        with pytest.raises(_emulator.LoadError):
            load(data)
    with pytest.raises(_emulator.LoadError, match="not an ELF file"):
        load(b"hello world")
    with pytest.raises(_emulator.LoadError, match="ELF machine 62"):
        load(Path("/proc/self/exe").read_bytes()[:4096])


def test_another_arch_and_another_abi(code: bytes) -> None:
    flags = struct.unpack_from("<I", code, 48)[0]
    arch = r"another arch .* only gfx942 and gfx950"
    others = (0x3F, 0x40, 0x41, 0x2F)  # gfx90a and others
    for offset, data, why in (
        *((48, struct.pack("<I", flags & ~0xFF | mach), arch) for mach in others),
        (48, struct.pack("<I", flags | 0x300), r"xnack\+"),
        (7, b"\0", "OS ABI 0"),
        (8, b"\x09", "ABI version 9; 2 to 4"),
        (16, b"\x01", "type 1"),
    ):
        with pytest.raises(_emulator.LoadError, match=why):
            load(patched(code, offset, data))


def test_without_its_metadata(code: bytes) -> None:
    table = struct.unpack_from("<Q", code, 40)[0]
    index = list(Elf(code).sections).index(".note")
    no_note = patched(code, table + 64 * index + 4, struct.pack("<I", 1))
    with pytest.raises(_emulator.LoadError, match="without the metadata note"):
        load(no_note)
    with pytest.raises(_emulator.LoadError, match=r"the symbol k\.kd"):
        load(code.replace(b"k.kd\0", b"z.kd\0"))


def test_the_metadata_has_the_size_of_arguments_that_a_descriptor_leaves_out(code: bytes) -> None:
    silent = patched(code, Elf(code).sections[".rodata"].offset + 8, bytes(4))
    kernel = load(silent).kernel("k")
    assert kernel.kernarg_size == 16
    out = np.zeros(64, np.uint32)
    machine = _emulator.Machine("gfx950")
    pointers = struct.pack("<2Q", 0, machine.map(out.ctypes.data, out.nbytes, "out"))
    with pytest.raises(ValueError, match="8 bytes of arguments; the kernel takes 16"):
        machine.launch(kernel, [1], [64], pointers[:8])
    assert not machine.launch(kernel, [1], [64], pointers).findings
    np.testing.assert_array_equal(out, np.arange(64))
    size = b".kernarg_segment_size"
    with pytest.raises(_emulator.LoadError, match="at 0 of 8 bytes lies outside its 0 bytes"):
        load(silent.replace(size + b"\x10", size + b"\0"))


LINES = """
  .file 1 "/somewhere" "kernel.hip"
  .loc 1 10 0
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  .loc 1 4711 0
  s_waitcnt lgkmcnt(0)
"""


def test_line_tables_of_another_build_or_damaged_ones(code: bytes) -> None:
    with_lines = assemble(LINES)
    with pytest.raises(_emulator.LoadError, match="of another build"):
        load(code, with_lines)
    section, random = Elf(with_lines).sections[".debug_line"], Random(3)
    for at in range(section.offset, section.offset + section.size):
        broken = bytearray(with_lines)
        broken[at] ^= random.randrange(1, 256)
        with contextlib.suppress(_emulator.LoadError):
            load(with_lines, bytes(broken))
