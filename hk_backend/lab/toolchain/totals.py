"""Differences of two builds in sum: kernels, bytes, registers, and kinds of instructions.

    python -m hk_backend.lab.toolchain.totals OLD [NEW]     two folders of code objects

`compare` names the kernels that differ; this says how.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hk_backend.kernels.catalogue import CODE_OBJECTS
from hk_backend.kernels.entry import code_object_arch
from hk_backend.lab.toolchain import compare, compiler, disassembly, metadata
from hk_backend.lab.toolchain.compiler import Toolchain, ToolchainError
from hk_backend.lab.toolchain.elf import Elf

RESOURCES = ("vgpr", "agpr", "sgpr", "spills", "scratch", "lds")
KINDS = 25
"""Kinds of instructions that a report names: those whose number changes most."""


@dataclass(frozen=True)
class Totals:
    """One kernel: its instructions, how many there are of each kind, and what it occupies."""

    instructions: bytes
    kinds: Counter[str]
    resources: Mapping[str, int]


def read(folder: Path, tools: Toolchain) -> dict[str, Totals]:
    """Kernels by arch and name. Raises `FileNotFoundError` if there is none."""
    found = {
        name: totals for path in sorted(folder.rglob("*.co")) for name, totals in _of(path, tools)
    }
    if not found:
        raise FileNotFoundError(f"no code objects (*.co) in {folder}")
    return found


def _of(path: Path, tools: Toolchain) -> Iterator[tuple[str, Totals]]:
    elf = Elf(path.read_bytes())
    arch = code_object_arch(elf.data)
    if arch is None:
        return
    code = disassembly.disassemble(path, arch, tools)
    for each in metadata.read(elf):
        resources = {
            "vgpr": each.vgpr_total - each.agpr,
            "agpr": each.agpr,
            "sgpr": each.sgpr,
            "spills": each.spills,
            "scratch": each.scratch,
            "lds": each.static_lds,
        }
        kinds = Counter(_bare(i.mnemonic) for i in code[each.name].instructions)
        yield (
            f"{arch} {each.name}",
            Totals(compare.kernel_in(elf, each.name).instructions, kinds, resources),
        )


def _bare(mnemonic: str) -> str:
    """A mnemonic without its encoding."""
    return mnemonic.removesuffix("_e32").removesuffix("_e64")


def report(old: Mapping[str, Totals], new: Mapping[str, Totals]) -> Iterator[str]:
    """Lines that say what changes from `old` to `new`, of the kernels that both have."""
    both = sorted(old.keys() & new.keys())
    other = [name for name in both if old[name].instructions != new[name].instructions]
    alone = len(old.keys() ^ new.keys())
    yield f"{len(both)} kernels, {len(other)} with other instructions; {alone} in one build alone"
    before, after = (sum(len(all_[name].instructions) for name in both) for all_ in (old, new))
    yield f"bytes of instructions: {before} -> {after} ({_percent(before, after)})"
    for what in RESOURCES:
        steps = {name: new[name].resources[what] - old[name].resources[what] for name in both}
        yield _resource(what, {name: step for name, step in steps.items() if step}, old, new)
    changes = {
        kind: sum(abs(new[name].kinds[kind] - old[name].kinds[kind]) for name in both)
        for name in both
        for kind in old[name].kinds | new[name].kinds
    }
    yield "kinds of instructions that change most, in all kernels together:"
    for kind in sorted((kind for kind in changes if changes[kind]), key=lambda k: -changes[k])[
        :KINDS
    ]:
        before, after = (sum(all_[name].kinds[kind] for name in both) for all_ in (old, new))
        in_ = sum(old[name].kinds[kind] != new[name].kinds[kind] for name in both)
        yield f"  {kind}: {before} -> {after} ({_percent(before, after)}), in {in_} kernels"


def _resource(
    what: str, steps: Mapping[str, int], old: Mapping[str, Totals], new: Mapping[str, Totals]
) -> str:
    if not steps:
        return f"{what}: the same"
    more, fewer = (sum(step * sign > 0 for step in steps.values()) for sign in (1, -1))
    most = max(steps, key=lambda name: abs(steps[name]))
    values = f"{old[most].resources[what]} -> {new[most].resources[what]}"
    return f"{what}: more in {more}, fewer in {fewer}; most in {most}: {values}"


def _percent(before: int, after: int) -> str:
    return f"{100 * (after / before - 1):+.1f}%" if before else "new"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns 2 without any kernels to count."""
    parser = argparse.ArgumentParser(prog="python -m hk_backend.lab.toolchain.totals")
    parser.add_argument("old", type=Path, help="a folder of code objects")
    parser.add_argument("new", type=Path, nargs="?", default=CODE_OBJECTS, help="what ships")
    options = parser.parse_args(argv)
    try:
        tools = compiler.find()
        old, new = read(options.old, tools), read(options.new, tools)
    except (FileNotFoundError, ToolchainError) as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(report(old, new)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
