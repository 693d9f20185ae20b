"""Reads files with code objects: an ELF file, or the bundle of several archs that hipcc writes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hk_backend import _emulator

BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED = b"CCOB"
TARGET = "amdgcn-amd-amdhsa--"
"""Text before the arch in the name of a bundle's entry (clang's "Offload Bundler", entry ID)."""


class ObjectError(ValueError):
    """The file has no code object that the emulator can load."""


@dataclass(frozen=True)
class ObjectFile:
    """A loaded code object.

    Attributes:
        note: the reason why findings have no source lines, although the file has line tables.
    """

    path: Path
    code: _emulator.CodeObject
    note: str = ""

    def kernel(self, name: str) -> _emulator.Kernel:
        """The kernel of this name, or the only one. Raises `ObjectError`."""
        names = [kernel.name for kernel in self.code.kernels]
        if not names:
            raise ObjectError(f"{self.path} has no kernel")
        if not name and len(names) > 1:
            raise ObjectError(f"it is missing; valid: {', '.join(names)}")
        if name and name not in names:
            raise ObjectError(f"{name!r}; valid: {', '.join(names)}")
        return self.code.kernel(name or names[0])


def load(path: Path, arch: str = "") -> ObjectFile:
    """Load a code object with its line tables.

    Args:
        arch: the arch to take from a bundle; a bundle of one arch needs none.

    Raises `ObjectError` or `OSError`.
    """
    elf = _elf_of(path, arch)
    try:
        return ObjectFile(path, _emulator.CodeObject.load(elf, elf))
    except _emulator.LoadError as error:
        try:  # unreadable line tables do not keep a kernel from running
            return ObjectFile(path, _emulator.CodeObject.load(elf), str(error))
        except _emulator.LoadError as worse:
            raise ObjectError(f"{path}: {worse}") from None


def _elf_of(path: Path, arch: str) -> bytes:
    data = path.read_bytes()
    if data.startswith(COMPRESSED):
        raise ObjectError(
            f"{path} is a compressed bundle; valid: what hipcc --no-offload-compress writes"
        )
    if not data.startswith(BUNDLE):
        return data
    entries = dict(_entries(path, data))
    if not arch and len(entries) == 1:
        return next(iter(entries.values()))
    if arch not in entries:
        asked = f"for {arch!r}" if arch else "for several archs"
        valid = ", ".join(entries) or "none"
        raise ObjectError(f"{path} is a bundle; --arch {asked}; valid: {valid}")
    return entries[arch]


def _entries(path: Path, bundle: bytes) -> Iterator[tuple[str, bytes]]:
    """(arch, code object) of each GPU in a bundle."""
    try:
        at = len(BUNDLE)
        (count,) = struct.unpack_from("<Q", bundle, at)
        at += 8
        for _ in range(count):
            offset, size, length = struct.unpack_from("<3Q", bundle, at)
            name = bundle[at + 24 : at + 24 + length].decode()
            at += 24 + length
            _, found, target = name.partition(TARGET)
            if found:
                yield target.partition(":")[0], bundle[offset : offset + size]
    except (struct.error, UnicodeDecodeError) as error:
        raise ObjectError(f"{path} is a damaged bundle: {error}") from None
