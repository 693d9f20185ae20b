"""Says which kernels of two builds have other instructions or another descriptor.

    python -m hk_backend.kernels.toolchain.compare OLD NEW

OLD and NEW are folders of code objects, e.g. hk_backend/kernels/codeobjects/gfx950. Metadata,
kernel information and line tables may differ; the exit status is 1 if anything else does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hk_backend.kernels.toolchain.elf import Elf

DESCRIPTOR = ".kd"  # ends the name of a kernel descriptor's symbol
ENTRY = slice(16, 24)  # of a descriptor: the distance to the code, which is the linker's


@dataclass(frozen=True)
class Kernel:
    """What the GPU executes of a kernel, wherever it lies in its file."""

    instructions: bytes
    descriptor: bytes


def kernels(folder: Path) -> dict[str, Kernel]:
    """By name, of every code object in a folder. Raises `FileNotFoundError` if there is none."""
    files = sorted(folder.glob("*.co"))
    if not files:
        raise FileNotFoundError(f"no code objects (*.co) in {folder}")
    return {name: found for file in files for name, found in _read(Elf(file.read_bytes()))}


def _read(elf: Elf) -> list[tuple[str, Kernel]]:
    names = [name for name in elf.symbols() if name.endswith(DESCRIPTOR)]
    found = []
    for name in names:
        descriptor = bytearray(elf.symbol_bytes(name))
        descriptor[ENTRY] = bytes(8)
        kernel = name.removesuffix(DESCRIPTOR)
        found.append((kernel, Kernel(elf.symbol_bytes(kernel), bytes(descriptor))))
    return found


def differences(old: dict[str, Kernel], new: dict[str, Kernel]) -> dict[str, str]:
    """Each kernel that is not the same in both, and what of it differs."""
    found = {}
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            found[name] = "new" if name in new else "gone"
            continue
        parts = [
            part
            for part in ("instructions", "descriptor")
            if getattr(old[name], part) != getattr(new[name], part)
        ]
        if parts:
            found[name] = " and ".join(parts)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """0 if all kernels are the same, 1 if not, 2 if there is nothing to compare."""
    parser = argparse.ArgumentParser(prog="python -m hk_backend.kernels.toolchain.compare")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    options = parser.parse_args(argv)
    try:
        old, new = kernels(options.old), kernels(options.new)
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    found = differences(old, new)
    for name, what in found.items():
        print(f"{name}: {what}")
    print(f"{len(old.keys() & new.keys() - found.keys())} kernels are the same")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
