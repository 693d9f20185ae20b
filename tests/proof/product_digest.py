"""A digest of the product's sources that decide what an engine serves, and of what they run with.

`product_digest("vllm")` covers the engine's plugin, every module of the project that it imports,
directly or not, their data, the host kernels and the launcher. Commands, benchmarks and
quantisation are not covered. Which GPU kernels ship, and how they are called, counts; their
instructions and the emulator do not, since kernels have records of their own. Docstrings and
comments do not count.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Iterator

from hk_backend.kernels import arches, catalogue
from hk_backend.machine import ENGINES, version_of
from tests.proof import source_digest
from tests.proof.cpp_source import meaning
from tests.proof.kernel_digest import digest

CSRC = source_digest.ROOT / "csrc"
NATIVE = ("cpu", "hip", "include/hk/args")
"""Folders of C++ that a plugin runs. The last has the structs and grids of GPU kernels."""
DISTRIBUTIONS = {"vllm": ENGINES["vLLM"], "sglang": ENGINES["SGLang"]}


@functools.cache
def product_digest(engine: str) -> str:
    """The digest for `engine`, "vllm" or "sglang"."""
    return digest(*sources(engine), *_kernels(), *versions(engine))


def sources(engine: str) -> Iterator[str]:
    """Names and meanings of Python modules, of data beside them, and of C++ files, in order."""
    found = sorted(modules(engine))
    for module in found:
        yield module
        yield source_digest.meaning_of(module)
    for folder in sorted({source_digest.file_of(module).parent for module in found}):
        for path in sorted(folder.glob("*.json")):
            yield from (path.name, path.read_text())
    for name in NATIVE:
        for path in sorted((CSRC / name).rglob("*.[ch]pp")):
            yield from (path.relative_to(CSRC).as_posix(), meaning(path.read_text()))


def modules(engine: str) -> set[str]:
    """The modules of the plugin, and those of the project that they import, directly or not."""
    found: set[str] = set()
    left = source_digest.modules_of(f"hk_{engine}")
    while left:
        module = left.pop()
        if module not in found:
            found.add(module)
            left += source_digest.imported_by(module)
    return found


def _kernels() -> Iterator[str]:
    """How each kernel is chosen and called."""
    for arch in arches():
        for entry in sorted(catalogue(arch).kernels, key=lambda entry: entry.name):
            chosen_by = (arch, entry.name, entry.operator, sorted(entry.facts.items()))
            launch = (entry.grid, entry.tile, entry.block, entry.dynamic_lds)
            yield repr((chosen_by, entry.arguments, launch))


def versions(engine: str) -> tuple[str, str]:
    """The versions of the engine and of torch, whatever they were built for."""
    found = version_of(*DISTRIBUTIONS[engine]), importlib.metadata.version("torch")
    first, second = (str(version).partition("+")[0] for version in found)
    return first, second
