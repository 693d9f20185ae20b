"""Kernel sources: the arches of each, and the files that a code object is compiled from."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from hk_backend.lab.toolchain import clocks

SOURCES = Path("csrc/kernels")
MEASURE = SOURCES / "measure"
FOLDERS = (SOURCES, MEASURE)
"""Folders of kernel sources: kernels for serving, and kernels that measure a GPU.

Each folder has its sources at the top, and a catalogue of its own. Its code objects lie at the same
relative path below the output.
"""
INCLUDES = Path("csrc/include")
INCLUDE = re.compile(r'^#include "(.+)"', re.MULTILINE)
DIGITS = 16  # length of a digest
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


def included(source: Path, root: Path) -> list[Path]:
    """A source and every file of the repository that it includes, on any arch, by their paths."""
    found = {source}
    left = [source]
    while left:
        path = left.pop()
        for name in INCLUDE.findall((root / path).read_text()):
            for folder in (path.parent, INCLUDES):
                file = Path(os.path.normpath(folder / name))
                if file not in found and (root / file).is_file():
                    found.add(file)
                    left.append(file)
    return sorted(found)


def digest(source: Path, root: Path, flags: Sequence[str]) -> str:
    """Digits of a SHA-256 over what a code object is compiled from: flags, and whole files."""
    state = hashlib.sha256(" ".join(flags).encode())
    for path in included(source, root):
        state.update(f"{path}\n".encode() + hashlib.sha256((root / path).read_bytes()).digest())
    return state.hexdigest()[:DIGITS]
