"""Line tables of DWARF 4, which Triton writes, say what those of DWARF 5 say of the same source."""

from __future__ import annotations

import struct
from random import Random

import pytest

from hk_backend import _emulator
from hk_backend.lab.toolchain.elf import Elf
from tests.emulator.assembly import PROLOGUE, assemble

# Two files in two folders, one of them relative; lines that go back and far ahead; no line; an
# advance of the address that no special opcode holds.
BODY = f"""
  .file 1 "/src/kernels" "add.py"
  .file 2 "/src/kernels" "lib/load.hpp"
  .file 3 "other.hip"
  .loc 1 10 0
  {PROLOGUE}
  .loc 2 4711 3
  v_mov_b32 v2, 1
  .loc 2 7 0
  {"v_mov_b32 v3, 2" + chr(10)}
  .loc 1 0 0
  v_mov_b32 v4, 3
  .loc 3 70000 0
  {("v_mov_b32 v5, 4" + chr(10)) * 300}
  .loc 1 12 0
  global_store_dword v1, v0, s[6:7]
"""
LINES = [
    "/src/kernels/add.py:10",
    "/src/kernels/lib/load.hpp:4711",
    "/src/kernels/lib/load.hpp:7",
    "other.hip:70000",
    "/src/kernels/add.py:12",
]


def lines(code: bytes) -> dict[int, str]:
    return _emulator.CodeObject.load(code, code).kernel("k").lines


@pytest.fixture(scope="module")
def versions() -> dict[int, bytes]:
    """The same source with line tables of both versions."""
    return {version: assemble(BODY, dwarf=version) for version in (4, 5)}


def section(code: bytes) -> tuple[int, int]:
    found = Elf(code).sections[".debug_line"]
    return found.offset, found.size


def test_both_versions_say_the_same(versions: dict[int, bytes]) -> None:
    for version, code in versions.items():
        at, _ = section(code)
        assert struct.unpack_from("<H", code, at + 4) == (version,)
    four, five = lines(versions[4]), lines(versions[5])
    assert list(dict.fromkeys(four.values())) == LINES
    # only DWARF 5 has the folder of the compilation in the line table itself
    assert list(five) == list(four)
    for pc, line in five.items():
        assert line.endswith(four[pc])
        assert line == four[pc] or not four[pc].startswith("/")


def test_an_instruction_without_a_line(versions: dict[int, bytes]) -> None:
    """Line 0 means that no line made an instruction."""
    text = dict(_emulator.disassemble(text_of(versions[4]), "gfx950"))
    nowhere = {pc for pc in text if pc not in lines(versions[4])}
    assert {text[pc] for pc in nowhere} == {"v_mov_b32_e32 v4, 3"}


def text_of(code: bytes) -> bytes:
    found = Elf(code).sections[".text"]
    return code[found.offset : found.offset + found.size]


def test_findings_name_the_line(versions: dict[int, bytes]) -> None:
    kernel = _emulator.CodeObject.load(versions[4], versions[4]).kernel("k")
    report = _emulator.Machine("gfx950").launch(kernel, [1], [64], [None, None])
    assert {found.source for found in report.findings} == {"/src/kernels/add.py:12"}


@pytest.mark.parametrize("version", [0, 2, 3, 6, 0xFFFF])
def test_other_versions_are_refused(versions: dict[int, bytes], version: int) -> None:
    broken = bytearray(versions[4])
    struct.pack_into("<H", broken, section(versions[4])[0] + 4, version)
    with pytest.raises(_emulator.LoadError, match=f"DWARF version {version}: 4 or 5 expected"):
        lines(bytes(broken))


def test_a_table_that_ends_early(versions: dict[int, bytes]) -> None:
    """The unit's own length, and not the section's, says where a table ends."""
    code = versions[4]
    at, size = section(code)
    header = 10  # the header's length follows these bytes of the unit
    for length in (0, 1, 2, 5, header, header + 5, header + 30):
        broken = bytearray(code)
        struct.pack_into("<I", broken, at, length)
        with pytest.raises(_emulator.LoadError):
            lines(bytes(broken))
    for length in (size, 0x7FFFFFFF, 0xFFFFFFF0):
        broken = bytearray(code)
        struct.pack_into("<I", broken, at, length)
        with pytest.raises(_emulator.LoadError):
            lines(bytes(broken))


def test_headers_without_sense(versions: dict[int, bytes]) -> None:
    """Offsets in a unit of DWARF 4 (section 6.2.4): line range 14, opcode base 15."""
    code = versions[4]
    at, _ = section(code)
    for offset in (14, 15):
        broken = bytearray(code)
        assert broken[at + offset]
        broken[at + offset] = 0
        with pytest.raises(_emulator.LoadError, match="line range or opcode base of 0"):
            lines(bytes(broken))


@pytest.mark.parametrize("version", [4, 5])
def test_any_wrong_byte_is_refused_or_read(versions: dict[int, bytes], version: int) -> None:
    code, random = versions[version], Random(version)
    at, size = section(code)
    refused = 0
    for place in range(at, at + size):
        broken = bytearray(code)
        broken[place] ^= random.randrange(1, 256)
        try:
            lines(bytes(broken))
        except _emulator.LoadError:
            refused += 1
    assert refused > 10


NAMES = {
    "größe.hip": "größe.hip",
    "\N{KANGAROO}.py": "\N{KANGAROO}.py",
    b"gr\xf6\xdfe.hip": "gr??e.hip",  # Latin-1
    b"\xc0\xafa": "??a",  # too long a form of /
    b"\xed\xa0\x80a": "???a",  # half of a surrogate pair
    b"\xf4\x90\x80\x80": "????",  # past the last character
    b"a\xe2\x82": "a??",  # cut off
}


@pytest.mark.parametrize("name", NAMES)
def test_names_that_are_not_utf8_are_still_read(name: str | bytes) -> None:
    """Python's strings hold characters: other bytes become question marks."""
    data = name if isinstance(name, bytes) else name.encode()
    placeholder = "x" * len(data)
    code = assemble(f'.file 1 "/k" "{placeholder}"\n.loc 1 5 0\n{PROLOGUE}', dwarf=4)
    assert code.count(placeholder.encode() + b"\0") == 1
    found = lines(code.replace(placeholder.encode() + b"\0", data + b"\0"))
    assert set(found.values()) == {f"/k/{NAMES[name]}:5"}
