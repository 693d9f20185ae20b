"""The command behind `make sweep CLANG=...`: the kernels by another compiler, and their proofs.

    `make sweep CLANG=clang++-24`               builds, says what differs, and runs the proofs.
    `make sweep CLANG=clang++-24 ONLY=gemm_fp8` runs those with this in check, source or kernel.

All of it happens in a copy of the tree, `build/sweep/VERSION`: what ships stays as it is, and so do
its records. The copy keeps its own, so an interrupted run can be resumed. A kernel whose code the
other compiler does not change needs no proof.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import typer

from hk_backend.kernels.catalogue import CODE_OBJECTS
from hk_backend.kernels.index import records as kernels_in
from hk_backend.lab.toolchain import build, compiler, sources
from hk_backend.lab.toolchain.compiler import ToolchainError
from tests.models import ROOT
from tests.processes import finished
from tests.proof import records
from tests.proof.prover import KERNELS

BUILD = ROOT / "build" / "sweep"
OBJECTS = CODE_OBJECTS.relative_to(ROOT)
KEPT = (OBJECTS, records.FOLDER.relative_to(ROOT))
"""Folders that are a copy's own from its first run on."""
CHECKS = [f"tests/kernels/test_{name}.py" for name in ("bars", "measure", "traffic")]
"""Tests of code objects that are no proofs."""
TOOLCHAIN = "hk_backend.lab.toolchain"


def main(
    clang: str = typer.Argument(help="The compiler: clang++, with LLVM's tools beside it."),
    only: str = typer.Option("", envvar="ONLY", help="A part of a check's or a kernel's name."),
) -> None:
    """Build the kernels with another compiler, say what differs, and run their proofs."""
    if not clang:
        raise typer.BadParameter("name a compiler: make sweep CLANG=clang++-24")
    try:
        tools = compiler.find(clang)
    except ToolchainError as error:
        raise typer.BadParameter(str(error)) from None
    tree = BUILD / re.sub(r"[^\w.]+", "-", tools.version).strip("-")
    copy(ROOT, tree)
    environment = {**os.environ, **variables(tree, tools.clang), "ONLY": only, "FRESH": ""}

    def run(*words: str) -> bool:
        """Whether a module of the copy succeeds."""
        command = [sys.executable, "-m", *words]
        return not subprocess.run(command, cwd=tree, env=environment, check=False).returncode

    old = [word for source in stale(tree, tools.version) for word in ("--source", str(source))]
    if old and not run(f"{TOOLCHAIN}.build", *old):
        raise typer.Exit(1)
    passed = [
        run(f"{TOOLCHAIN}.totals", str(CODE_OBJECTS)),
        run("pytest", "-q", "-m", "not proof", *CHECKS),
        run("tests.proof", "--group", KERNELS.name),
    ]
    raise typer.Exit(not all(passed))


def variables(tree: Path, clang: Path) -> dict[str, str]:
    """The environment in which Python finds the copy, and the copy the compiler: by the name that
    it looks for first."""
    found = tree / "build" / "bin" / f"clang++-{compiler.OLDEST}"
    found.parent.mkdir(parents=True, exist_ok=True)
    found.unlink(missing_ok=True)
    found.symlink_to(clang)
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    outside = [path for path in inherited if not Path(path).is_relative_to(ROOT)]
    return {
        "PATH": os.pathsep.join([str(found.parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(tree), str(tree / "integration"), *outside]),
    }


def copy(root: Path, tree: Path) -> None:
    """Makes `tree` a copy of every file that git would add, and of the compiled parts.

    What `tree` has in the folders `KEPT` stays.
    """
    aside = tree.with_name(f"{tree.name}.kept")
    for folder in KEPT:
        if (tree / folder).is_dir():
            shutil.rmtree(aside / folder, ignore_errors=True)
            (aside / folder).parent.mkdir(parents=True, exist_ok=True)
            (tree / folder).rename(aside / folder)
    shutil.rmtree(tree, ignore_errors=True)
    listing = finished("git", "ls-files", "-co", "--exclude-standard", cwd=root, check=True).stdout
    compiled = [str(path.relative_to(root)) for path in (root / "hk_backend").glob("*.so")]
    for name in [*listing.splitlines(), *compiled]:
        if (root / name).is_file():  # not deleted
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, tree / name)
    for folder in KEPT:
        if (aside / folder).is_dir():
            shutil.rmtree(tree / folder, ignore_errors=True)
            (aside / folder).rename(tree / folder)
    shutil.rmtree(aside, ignore_errors=True)


def stale(tree: Path, version: str) -> list[Path]:
    """The sources whose code objects in `tree` are another compiler's, or of an older text."""
    found = set()
    for folder in sources.folders(tree):
        for arch in sources.named_arches(tree, folder):
            objects = tree / OBJECTS / folder.relative_to(sources.SOURCES) / arch
            made = dict(_made(objects))
            for source in sources.built_for(arch, tree, folder)[0]:
                now = (sources.digest(source, tree, build.FLAGS), version)
                if made.get(source.stem) != now:
                    found.add(source)
    return sorted(found)


def _made(objects: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    """Each code object with the digest of its sources, and its compiler."""
    for path in objects.glob("*.json"):
        index = json.loads(path.read_text())
        for name, _, record in kernels_in(index):
            yield name, (index["code_objects"][name]["sources"], record["compiler"])


if __name__ == "__main__":
    typer.run(main)
