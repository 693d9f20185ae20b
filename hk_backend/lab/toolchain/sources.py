"""Kernel sources: the arches of each, the files that a compilation read, and changes to these."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from hk_backend.lab.toolchain import clocks

SOURCES = Path("csrc/kernels")
MEASURE = SOURCES / "measure"
FOLDERS = (SOURCES, MEASURE)
"""Folders of kernel sources: kernels that serve, and kernels that measure a GPU.

Each folder has its sources at the top, and a catalogue of its own. Its code objects lie at the same
relative path below the output.
"""
NAMED = re.compile(r"^HK_ARCHES\((.*)\);", re.MULTILINE)


class SourceError(RuntimeError):
    """There are no sources, or a source does not name its arches."""


def arches(source: Path, root: Path) -> list[str]:
    """Arches of a source, from its line `HK_ARCHES(...);`. Raises `SourceError`."""
    line = NAMED.search((root / source).read_text())
    named = [name.strip() for name in line[1].split(",")] if line else []
    if not named or not set(named) <= set(clocks.ARCHES):
        found = f"is for {', '.join(named)}" if named else "does not say which arches it is for"
        known = ", ".join(clocks.ARCHES)
        raise SourceError(f"{source} {found}: HK_ARCHES(...); takes some of {known}")
    return named


def folders(root: Path) -> list[Path]:
    """The `FOLDERS` that exist, and always the first."""
    return [folder for folder in FOLDERS if folder == SOURCES or (root / folder).is_dir()]


def by_arches(root: Path, folder: Path = SOURCES) -> dict[Path, list[str]]:
    """Every kernel source of a folder with its arches; paths are relative to `root`. Raises
    `SourceError`."""
    found = sorted(path.relative_to(root) for path in (root / folder).glob("*.hip"))
    if not found:
        raise SourceError(f"no kernels in {folder} of {root}: build from a copy of the repository")
    return {source: arches(source, root) for source in found}


def built_for(arch: str, root: Path, folder: Path = SOURCES) -> tuple[list[Path], dict[Path, str]]:
    """The sources for an arch; and the other sources, each with the reason. Raises
    `SourceError`."""
    every = by_arches(root, folder)
    others = {
        source: f"{source} is not built for {arch}: HK_ARCHES has {', '.join(named)}"
        for source, named in every.items()
        if arch not in named
    }
    return [source for source in every if source not in others], others


def named_arches(root: Path, folder: Path = SOURCES) -> list[str]:
    """Every arch that a source is built for. Raises `SourceError`."""
    return sorted({arch for named in by_arches(root, folder).values() for arch in named})


def read_by(dependencies: Path) -> list[str]:
    """Files of the repository that a compilation read, from the output of clang's `-MF`. These are
    the relative paths; the compiler's own files have absolute ones."""
    _, _, listed = dependencies.read_text().replace("\\\n", " ").partition(":")
    names = {os.path.normpath(name) for name in listed.split()}  # "hk/ops/../types/vector.hpp"
    return sorted(name for name in names if not os.path.isabs(name))


def digests(names: Iterable[str], root: Path) -> dict[str, str]:
    """The sha256 of each file."""
    return {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in names}


def changed(recorded: Mapping[str, str], root: Path) -> list[str]:
    """Files that changed since a code object of the index was compiled from them."""
    there = digests((name for name in recorded if (root / name).is_file()), root)
    return [name for name, digest in recorded.items() if there.get(name) != digest]
