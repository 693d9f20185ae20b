"""Which files a code object was compiled from, and whether they are still the same."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path


def read_by(dependencies: Path) -> list[str]:
    """The files that a compilation read, from what clang's `-MF` wrote: those that are named
    relative to where it ran, so not the compiler's own."""
    _, _, listed = dependencies.read_text().replace("\\\n", " ").partition(":")
    names = {os.path.normpath(name) for name in listed.split()}  # "hk/ops/../types/vector.hpp"
    return sorted(name for name in names if not os.path.isabs(name))


def digests(names: Iterable[str], root: Path) -> dict[str, str]:
    """Their sha256."""
    return {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in names}


def changed(recorded: Mapping[str, str], root: Path) -> list[str]:
    """The files of an index's code object that are not what it was compiled from."""
    there = digests((name for name in recorded if (root / name).is_file()), root)
    return [name for name, digest in recorded.items() if there.get(name) != digest]
