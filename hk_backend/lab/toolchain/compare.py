"""Lists which kernels of two builds differ in their instructions or their descriptor.

    python -m hk_backend.lab.toolchain.compare OLD [NEW]

OLD and NEW are folders of code objects or git revisions, e.g. HEAD~1; NEW defaults to the shipped
folder. Metadata, kernel information and line tables may differ; the exit status is 1 if anything
else does. A commit that changes code objects quotes this output and says why.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hk_backend.kernels.catalogue import CODE_OBJECTS
from hk_backend.kernels.entry import code_object_arch
from hk_backend.lab.toolchain.elf import Elf

DESCRIPTOR = ".kd"  # suffix of the symbol of a kernel descriptor
DIGITS = 16  # length of a digest
ENTRY = slice(16, 24)  # bytes of a descriptor with the distance to the code, which the linker sets


@dataclass(frozen=True)
class Kernel:
    """The bytes of a kernel that the GPU executes, independent of their place in the file."""

    instructions: bytes
    descriptor: bytes


def kernels(place: str) -> dict[str, Kernel]:
    """Kernels by arch and name, from every code object of a folder or a git revision.

    Raises `FileNotFoundError` if there is none.
    """
    if Path(place).is_dir():
        files = [path.read_bytes() for path in sorted(Path(place).rglob("*.co"))]
    else:
        files = list(_of_revision(place))
    if not files:
        raise FileNotFoundError(f"no code objects (*.co) in {place}")
    return {
        f"{code_object_arch(data)} {name}": found
        for data in files
        for name, found in kernels_in(Elf(data))
    }


def _of_revision(revision: str) -> Iterator[bytes]:
    """Yields the code objects of a git revision. Raises `FileNotFoundError` for any other text."""
    listing = ("ls-tree", "-r", "--name-only", revision, "--", str(CODE_OBJECTS))
    for name in _git(*listing).decode().splitlines():
        if name.endswith(".co"):
            yield _git("show", f"{revision}:./{name}")


def _git(*arguments: str) -> bytes:
    command = ("git", *arguments)
    done = subprocess.run(command, cwd=CODE_OBJECTS, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode().strip().partition("\n")[0]
        raise FileNotFoundError(f"neither a folder nor a revision: {said}")
    return done.stdout


def kernels_in(elf: Elf) -> list[tuple[str, Kernel]]:
    """The kernels of one code object, each with its name."""
    names = [s.removesuffix(DESCRIPTOR) for s in elf.symbols() if s.endswith(DESCRIPTOR)]
    return [(name, kernel_in(elf, name)) for name in names]


def kernel_in(elf: Elf, name: str) -> Kernel:
    descriptor = bytearray(elf.symbol_bytes(name + DESCRIPTOR))
    descriptor[ENTRY] = bytes(8)
    return Kernel(elf.symbol_bytes(name), bytes(descriptor))


def digest(elf: Elf, name: str) -> str:
    """Digits of a SHA-256 over a kernel's instructions and descriptor."""
    kernel = kernel_in(elf, name)
    return hashlib.sha256(kernel.descriptor + kernel.instructions).hexdigest()[:DIGITS]


def differences(old: dict[str, Kernel], new: dict[str, Kernel]) -> dict[str, str]:
    """Kernels that differ between both builds, each with its differing parts."""
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
    """Runs the command line. Returns 0 if all kernels are the same, 1 if not, 2 without any to
    compare."""
    parser = argparse.ArgumentParser(prog="python -m hk_backend.lab.toolchain.compare")
    parser.add_argument("old", help="a folder or a revision of git")
    parser.add_argument("new", nargs="?", default=str(CODE_OBJECTS), help="by default, what ships")
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
