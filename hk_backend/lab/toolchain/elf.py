"""Reads sections and symbols of a code object, an ELF file."""

from __future__ import annotations

import io
from typing import NamedTuple

from elftools.elf.elffile import ELFFile


class Section(NamedTuple):
    """A section's place: `address` in memory, `offset` in the file, `size` in bytes."""

    address: int
    offset: int
    size: int


class Elf:
    """An ELF file in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.file = ELFFile(io.BytesIO(data))
        self.sections = {
            section.name: Section(*(section[f"sh_{field}"] for field in ("addr", "offset", "size")))
            for section in self.file.iter_sections()
        }

    def symbols(self) -> dict[str, tuple[int, int]]:
        """Address and size of every dynamic symbol."""
        table = self.file.get_section_by_name(".dynsym")
        return {each.name: (each["st_value"], each["st_size"]) for each in table.iter_symbols()}

    def place(self, symbol: str) -> tuple[int, int]:
        """Offset of a symbol in the file, and its size. Raises `KeyError` if it is not there."""
        address, size = self.symbols()[symbol]
        for offset in self.file.address_offsets(address, size):
            return offset, size
        raise KeyError(symbol)

    def symbol_bytes(self, symbol: str) -> bytes:
        """Bytes of a function or a constant. Raises `KeyError` if there is no such symbol."""
        offset, size = self.place(symbol)
        return self.data[offset : offset + size]
