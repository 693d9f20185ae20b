"""A few kernels of a source, in which a fault is looked for: whole sources compile for minutes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

from hk_backend.kernels import catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.lab.toolchain import build, compiler
from hk_backend.lab.toolchain.sources import NAMED
from tests.kernels.sources import INFO, KERNEL
from tests.proof import records


def few_kernels(source: str) -> list[str]:
    """Kernels of `source` that have each value of each fact, and each tile, the cheapest to prove
    first. Kernels for fp16 come last: they share records of their bf16 twins, so theirs cost more
    than they say. All kernels of a source without records.
    """
    entries = [
        entry for entry in catalogue("gfx950").kernels if entry.path.stem == Path(source).stem
    ]
    seconds: dict[str, float] = defaultdict(float)
    for record in records.read().values():
        seconds[record.name] += record.seconds
    entries.sort(key=lambda entry: ("f16" in entry.facts.values(), seconds[entry.name]))
    chosen: list[str] = []
    seen: set[tuple[str, object]] = set()
    for entry in entries:
        if not seconds[entry.name] or not marks(entry) <= seen:
            chosen.append(entry.name)
            seen |= marks(entry)
    return chosen


def marks(entry: KernelEntry) -> set[tuple[str, object]]:
    return {*entry.facts.items(), ("tile", entry.tile)}


def only(tree: Path, source: str, kernels: Collection[str]) -> str:
    """Preprocessed text of a source in `tree` with these kernels alone, and all line numbers.

    Its end names the source's arches for the build, which reads them from the macro.
    """
    text = compiler.find().run(
        "clang++", *build.FLAGS, "--offload-arch=gfx950", "-E", source, cwd=tree
    )

    def kept(found: re.Match[str]) -> str:
        return found[0] if found[1] in kernels else "\n" * found[0].count("\n")

    for definition in KERNEL, INFO:
        text = definition.sub(kept, text)
    named = NAMED.search((tree / source).read_text())
    return f"{text}\n#if 0\n{named[0]}\n#endif\n" if named else text
