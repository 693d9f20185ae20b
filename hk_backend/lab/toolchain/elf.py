"""Reads sections and symbols of a code object (ELF64, little endian)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
NOBITS = 8  # a section without bytes in the file


@dataclass(frozen=True)
class Section:
    """A section's place: `address` in memory, `offset` in the file, `size` in bytes."""

    name: str
    type: int
    address: int
    offset: int
    size: int


class Elf:
    """An ELF file in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        start, size, count, names = (
            int.from_bytes(data[0x28:0x30], "little"),
            *struct.unpack_from("<HHH", data, 0x3A),
        )
        headers = [SECTION.unpack_from(data, start + i * size) for i in range(count)]
        base = headers[names][4]
        self.sections = {
            (name := self._text(base + header[0])): Section(name, header[1], *header[3:6])
            for header in headers
        }

    def symbols(self) -> dict[str, tuple[int, int]]:
        """Address and size of every dynamic symbol."""
        table, names = self.sections[".dynsym"], self.sections[".dynstr"]
        found = {}
        for place in range(table.offset, table.offset + table.size, SYMBOL.size):
            name, _, _, _, address, size = SYMBOL.unpack_from(self.data, place)
            found[self._text(names.offset + name)] = (address, size)
        return found

    def symbol_bytes(self, name: str) -> bytes:
        """Bytes of a constant. Raises `KeyError` if there is no such symbol."""
        address, size = self.symbols()[name]
        for section in self.sections.values():
            if section.type != NOBITS and 0 <= address - section.address < section.size:
                start = section.offset + address - section.address
                return self.data[start : start + size]
        raise KeyError(name)

    def _text(self, start: int) -> str:
        return self.data[start : self.data.index(b"\0", start)].decode()
