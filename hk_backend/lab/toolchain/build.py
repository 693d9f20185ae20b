"""Builds the kernels: every csrc/kernels/*.hip into code objects, and an index for each operator.

Kernels in csrc/kernels/measure/*.hip, which measure a GPU, go to a catalogue of their own.

Each source is compiled once, with line tables. The stripped code object (`.co`) is what ships and
what the emulator executes. The line tables are stored next to it, compressed (`.lines`). The index
is read from the compiler's output: metadata, debug information, and each kernel's `hk::KernelInfo`.
The same compiler produces the same bytes, wherever the sources are.

    make kernels
    python -m hk_backend.lab.toolchain.build [--arch gfx950] [--source FILE] [--output FOLDER]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hk_backend.kernels.catalogue import CODE_OBJECTS
from hk_backend.kernels.index import Record, arguments_of, entry_of, read_index, records
from hk_backend.lab.toolchain import clocks, compiler, disassembly, metadata, sources
from hk_backend.lab.toolchain.compiler import Toolchain, ToolchainError
from hk_backend.lab.toolchain.debug_info import DebugInfo, DebugInfoError
from hk_backend.lab.toolchain.describe import BuildError, conflict_factor, describe
from hk_backend.lab.toolchain.elf import Elf
from hk_backend.lab.toolchain.index_file import index_of, text_of
from hk_backend.lab.toolchain.sources import SourceError

ROOT = Path(__file__).parents[3]
FLAGS = (
    *("-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib"),
    *("-std=c++20", "-O3", "-Wall", "-Wextra", "-Werror", "-Icsrc/include"),
    "-mcode-object-version=5",  # ABI that ROCm 6 also supports
    *("-g", "-fdebug-compilation-dir=.", "-fuse-cuid=none"),  # embed no path and no hash of a path
)
PACKING = 23
"""The first clang that packs float32 instructions which kernels keep apart (SLP vectoriser): they
would wait for the matrix unit (docs/timing.md)."""
FACTOR = "bank_conflict_factor"
"""The one figure that takes a run in the emulator."""
LINE_SECTIONS = {".debug_line", ".debug_line_str"}
SYMBOLS = {".comment", ".symtab", ".strtab"}
"""Sections that a line table does without."""


@dataclass(frozen=True)
class Built:
    """One source, compiled for one arch."""

    name: str
    file: Record  # size and digests
    kernels: dict[str, dict[str, Record]]  # whole records by operator and name


def build(
    arch: str,
    output: Path,
    tools: Toolchain,
    only: Sequence[Path] = (),
    root: Path | None = None,
    run: bool = True,
    folder: Path = sources.SOURCES,
) -> list[Path]:
    """Compiles the sources into `output`, and returns the paths of the indexes.

    Builds every source of `folder` in `root` (default: the repository) that names the arch. With
    `only` (paths relative to `root`) it builds just these, and keeps what `output` has of the
    others. Any other file of a kernel is removed from `output`. Without `run` nothing is launched
    in the emulator, and figures that need a run are missing.

    Raises `SourceError`, `ToolchainError` with the compiler's messages, `BuildError`,
    `DebugInfoError`.
    """
    root = root or ROOT
    everything, skipped = sources.built_for(arch, root, folder)
    if not everything:
        raise BuildError("\n".join(skipped.values()))
    if refused := [skipped[source] for source in only if source in skipped]:
        raise BuildError("\n".join(refused))
    output.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        built = list(
            pool.map(
                lambda source: compile_one(source, arch, output, tools, root), only or everything
            )
        )
    kept = {path.stem for path in everything} - {unit.name for unit in built}
    families = by_operator(built, kept, output)
    for operator, files in families.items() if run else ():
        for name, file in files.items():
            run_kernels(file, output / f"{name}.co", operator, tools)
    for path in output.iterdir():
        gone = path.stem not in {source.stem for source in everything}
        if path.suffix == ".json" or (gone and path.suffix in (".co", ".lines")):
            path.unlink()
    for operator, files in families.items():
        index = index_of(arch, operator, files)
        (output / f"{operator}.json").write_text(text_of(index) + "\n")
    read_index.cache_clear()
    return [output / f"{operator}.json" for operator in families]


def run_kernels(file: Record, path: Path, operator: str, tools: Toolchain) -> None:
    """Adds the bank conflict factor of each kernel that has none yet. Raises `BuildError`."""
    for name, record in file["kernels"].items():
        if FACTOR not in record["figures"]:
            made = {**record, "arguments": arguments_of(record["arguments"])}
            entry = entry_of(name, made, file, path, operator)
            record["figures"][FACTOR] = conflict_factor(entry, tools)


def by_operator(
    built: Sequence[Built], kept: set[str], output: Path
) -> dict[str, dict[str, Record]]:
    """Code objects by operator: those built now, and the `kept` ones of the indexes in `output`.

    A kernel built now keeps its bank conflict factor if its code has not changed.
    """
    found: dict[str, dict[str, Record]] = {}
    factors: dict[tuple[str, str], Record] = {}
    for path in sorted(output.glob("*.json")):
        before = json.loads(path.read_text())
        for name, kernel, record in records(before):
            if FACTOR in record["figures"]:
                factors[kernel, record["code"]] = {FACTOR: record["figures"][FACTOR]}
            if name in kept:
                file = before["code_objects"][name]
                own = {key: file[key] for key in ("size", "sha256", "sources")} | {"kernels": {}}
                files = found.setdefault(before["operator"], {})
                record["arguments"] = before["structs"][record["arguments"]]
                files.setdefault(name, own)["kernels"][kernel] = record
    for unit in built:
        for operator, kernels in unit.kernels.items():
            for kernel, record in kernels.items():
                record["figures"] |= factors.get((kernel, record["code"]), {})
            found.setdefault(operator, {})[unit.name] = {**unit.file, "kernels": kernels}
    return dict(sorted(found.items()))


def compile_one(source: Path, arch: str, output: Path, tools: Toolchain, root: Path) -> Built:
    """Compiles, strips, and describes every kernel of one source."""
    stripped, lines = output / f"{source.stem}.co", output / f"{source.stem}.lines"
    with tempfile.TemporaryDirectory() as folder:
        full = Path(folder) / stripped.name
        flags = (*flags_for(tools), f"--offload-arch={arch}")
        tools.run("clang++", *flags, source, "-o", full, cwd=root)
        tools.run("llvm-objcopy", "--strip-all", full, stripped)
        keep_lines(full, lines, tools)
        for file in stripped, lines:
            file.chmod(0o644)  # loaded, never executed by the system
        debug_info = DebugInfo.read(full, tools)
    data = stripped.read_bytes()
    code = disassembly.disassemble(stripped, arch, tools)
    record = {
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "sources": sources.digest(source, root, FLAGS),
    }
    kernels: dict[str, dict[str, Record]] = {}
    elf = Elf(data)
    for found in metadata.read(elf):
        operator, kernel = describe(found, code[found.name], elf, debug_info, arch, tools)
        kernels.setdefault(operator, {})[found.name] = kernel
    return Built(source.stem, record, kernels)


def flags_for(tools: Toolchain) -> tuple[str, ...]:
    """`FLAGS`, and what a newer compiler needs to make the same kind of code."""
    found = re.search(r"version (\d+)", tools.version)
    packs = found is not None and int(found[1]) >= PACKING
    return (*FLAGS, "-fno-slp-vectorize") if packs else FLAGS


def keep_lines(full: Path, lines: Path, tools: Toolchain) -> None:
    """Stores the line tables and the code they describe, compressed."""
    others = [
        name
        for name in Elf(full.read_bytes()).sections
        if name in SYMBOLS or (name.startswith(".debug_") and name not in LINE_SECTIONS)
    ]
    removed = [f"--remove-section={name}" for name in others]
    tools.run("llvm-objcopy", *removed, full, lines)
    lines.write_bytes(zlib.compress(lines.read_bytes(), level=9))


def _build_folder(
    folder: Path, options: argparse.Namespace, tools: Toolchain, only: Sequence[Path]
) -> None:
    """Builds the sources that the command asks for in one folder, and prints what it built."""
    of = {source: sources.arches(source, ROOT) for source in only}
    named = sorted({arch for each in of.values() for arch in each})
    for arch in options.arch or named or sources.named_arches(ROOT, folder):
        chosen = [source for source in only if options.arch or arch in of[source]]
        output = options.output.resolve() / folder.relative_to(sources.SOURCES) / arch
        paths = build(arch, output, tools, chosen, run=not options.no_run, folder=folder)
        for reason in () if only else sources.built_for(arch, ROOT, folder)[1].values():
            print(f"skipped: {reason}")
        names = [entry.name for path in paths for entry in read_index(path)]
        print(f"{arch}: {', '.join(names)}\n  by {tools.version}\n  in {output}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns 1 after a message if a kernel cannot be built."""
    parser = argparse.ArgumentParser(prog="python -m hk_backend.lab.toolchain.build")
    parser.add_argument(
        "--arch",
        action="append",
        choices=clocks.ARCHES,
        help="by default every arch that the sources name (HK_ARCHES)",
    )
    parser.add_argument("--source", action="append", type=Path, default=[], help="one .hip file")
    parser.add_argument("--output", type=Path, default=CODE_OBJECTS, help="a folder for each arch")
    parser.add_argument("--compiler", help="clang++; found by default")
    parser.add_argument("--no-run", action="store_true", help="compile and analyse, no emulation")
    options = parser.parse_args(argv)
    if outside := [path for path in options.source if not path.resolve().is_relative_to(ROOT)]:
        parser.error(f"--source {outside[0]}: must be in {ROOT}")
    only = [path.resolve().relative_to(ROOT) for path in options.source]
    try:
        tools = compiler.find(options.compiler)
        for folder in sources.folders(ROOT):
            chosen = [source for source in only if source.parent == folder]
            if chosen or not only:
                _build_folder(folder, options, tools, chosen)
    except ImportError as error:
        print(f"no emulator ({error}): `pip install -e .` builds it; or --no-run", file=sys.stderr)
        return 1
    except (SourceError, ToolchainError, BuildError, DebugInfoError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
