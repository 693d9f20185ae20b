"""Reads the types of a kernel's argument struct and of its info from the debug information.

The layout of a struct is thereby defined only once, in C++.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hk_backend.kernels.arguments import Arguments, Field
from hk_backend.lab.toolchain.compiler import Toolchain

ENTRY = re.compile(r"^0x([0-9a-f]+): +DW_TAG_(\w+)")
ATTRIBUTE = re.compile(r"^ +DW_AT_(\w+)\s+\((.*)\)$")
TYPE_REFERENCE = re.compile(r"0x([0-9a-f]+)")

SCALARS = {
    "int": "int32",
    "unsigned int": "uint32",
    "long": "int64",
    "unsigned long": "uint64",
    "long long": "int64",
    "unsigned long long": "uint64",
    "float": "float32",
    "bool": "bool",
}


class DebugInfoError(ValueError):
    """The catalogue cannot describe a struct."""


@dataclass
class Entry:
    """One entry of the debug information, with its nested entries."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Entry] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.attributes.get("name", "").strip('"')

    def number(self, attribute: str) -> int:
        return int(self.attributes[attribute], 0)


class DebugInfo:
    """The debug information of a file that was compiled with `-g`."""

    def __init__(self, text: str) -> None:
        self.entries: dict[int, Entry] = {}
        stack: list[tuple[int, Entry]] = []
        current = Entry("none")
        for line in text.splitlines():
            if found := ENTRY.match(line):
                indent = line.index("DW_TAG")
                current = self.entries[int(found[1], 16)] = Entry(found[2])
                while stack and stack[-1][0] >= indent:
                    stack.pop()
                if stack:
                    stack[-1][1].children.append(current)
                stack.append((indent, current))
            elif found := ATTRIBUTE.match(line):
                current.attributes[found[1]] = found[2]

    @classmethod
    def read(cls, file: Path, tools: Toolchain) -> DebugInfo:
        return cls(tools.run("llvm-dwarfdump", "--debug-info", file))

    def arguments(self, kernel: str) -> Arguments:
        """The one struct that a kernel takes by value. Raises `DebugInfoError`."""
        for entry in self._named("subprogram", kernel):
            types = [self._type(c) for c in entry.children if c.tag == "formal_parameter"]
            if [type_.tag for type_ in types] == ["structure_type"]:
                return self._struct(types[0], f"{kernel}'s argument")
        raise DebugInfoError(f"{kernel} must take one struct by value and nothing else")

    def struct_type(self, variable: str) -> Entry:
        """The type of a variable. Raises `DebugInfoError`."""
        for entry in self._named("variable", variable):
            return self._type(entry)
        raise DebugInfoError(f"there is no {variable}: see csrc/include/hk/kernel_info.hpp")

    def members(self, struct: Entry) -> Iterator[tuple[str, int, Entry]]:
        """Name, offset in bytes and type of each member, those of a base first."""
        for base in struct.children:
            if base.tag == "inheritance" and base.number("data_member_location") == 0:
                yield from self.members(self._type(base))
        for member in struct.children:
            if member.tag == "member" and "data_member_location" in member.attributes:
                yield member.name, member.number("data_member_location"), self._type(member)

    def _struct(self, struct: Entry, what: str) -> Arguments:
        fields = []
        for name, offset, type_ in self.members(struct):
            kind = "pointer" if type_.tag == "pointer_type" else SCALARS.get(type_.name)
            if kind is None:
                raise DebugInfoError(f"{what}: {name} is a {type_.name or type_.tag}")
            fields.append(Field(name, kind, offset))
        return Arguments(struct.number("byte_size"), tuple(fields))

    def _named(self, tag: str, name: str) -> Iterator[Entry]:
        return (e for e in self.entries.values() if e.tag == tag and e.name == name)

    def _type(self, entry: Entry) -> Entry:
        """The entry's type, without const and typedef."""
        while True:
            found = TYPE_REFERENCE.match(entry.attributes.get("type", ""))
            if not found:
                return Entry("unknown")
            entry = self.entries[int(found[1], 16)]
            if entry.tag not in ("typedef", "const_type", "volatile_type", "restrict_type"):
                return entry
