"""Rebuilds what a fault in C++ or in a kernel changes, and no more.

Host code: the objects that include the file, of the best instruction set where there is one for
each, linked with all others as `make venv` has left them. A kernel: the one source that its fault
names, as `make kernels` builds it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.mutants.few_kernels import only
from tests.processes import Done, finished

SLOWER = ("portable", "avx2", "avx512", "avx512_bf16", "amx")
INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)
EDGE = re.compile(r"^build (\S+): (?:cxx|link) (.*)\n  (?:flags|libraries) = (.*)$", re.MULTILINE)
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
EXTENSIONS = {f"hk_backend.{name}": f"{name}{SUFFIX}" for name in ("_cpu", "_emulator", "_hip")}
LIBRARY = "libhk_emulated_hip.so"
BUILD = (
    "import sys\n"
    "from hk_backend.lab.toolchain import build\n"
    "build.FLAGS += ('-Wno-error',)\n"
    "sys.exit(build.main())"
)
"""`make kernels`, with warnings allowed."""


class BuildFailedError(RuntimeError):
    """A compiler refuses the fault, which makes it none."""


@dataclass(frozen=True)
class Native:
    """`tree`: the copy that has the faults. `built`: the folder with the objects of its sources as
    they are. `isa`: the best instruction set that this processor has."""

    tree: Path
    built: Path
    isa: str

    @cached_property
    def _ninja(self) -> str:
        """The text of build.ninja, as the copy's setup.py writes it."""
        code = (
            "import json, sys, setuptools\n"
            "from pathlib import Path\n"
            "setuptools.setup = lambda **options: None\n"
            "import setup\n"
            "targets = json.loads(sys.argv[1]).items()\n"
            "print(setup.ninja_file({name: Path(file) for name, file in targets}))"
        )
        names = {**EXTENSIONS, LIBRARY: LIBRARY}
        targets = {name: str(self.tree / "hk_backend" / file) for name, file in names.items()}
        command = (sys.executable, "-c", code, json.dumps(targets))
        return run(command, self.tree).stdout

    @cached_property
    def edges(self) -> dict[str, tuple[str, str]]:
        """The sources of each object or library, and its flags or libraries."""
        return {name: (inputs, flags) for name, inputs, flags in EDGE.findall(self._ninja)}

    @cached_property
    def command(self) -> str:
        """The compiler's command, up to the flags of an object."""
        found = re.search(r"command = (c\+\+ .*) \$flags", self._ninja)
        assert found
        return found.group(1)

    def rebuild(self, file: str) -> list[Path]:
        """Compile what reads `file` of csrc/cpu, csrc/emulator or csrc/hip; the libraries that have
        changed. Raises `BuildFailedError`."""
        new = self.tree / "build" / "faulty"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        changed = {
            name: self.compile(name, source, flags, new)
            for name, (source, flags) in self.edges.items()
            if name.endswith(".o") and self.is_best(name) and self.reads(source, file)
        }
        if not changed:
            raise BuildFailedError(f"no object of {self.isa} reads {file}")
        linked = []
        for target, (objects, libraries) in self.edges.items():
            names = objects.split()
            if not target.endswith(".o") and changed.keys() & set(names):
                paths = [changed.get(name, self.built / name) for name in names]
                library = Path(target)
                run(("c++", "-shared", *map(str, paths), "-o", f"{target}.new", *libraries.split()),
                    self.tree)  # fmt: skip
                library.with_name(f"{library.name}.new").replace(library)
                linked.append(library)
        return linked

    def compile(self, name: str, source: str, flags: str, into: Path) -> Path:
        run(
            (*self.command.split(), *flags.split(), "-c", source, "-o", str(into / name)), self.tree
        )
        return into / name

    def is_best(self, name: str) -> bool:
        """Whether an object is not one of several of which another is run here."""
        isa = next((isa for isa in reversed(SLOWER) if name.endswith(f"_{isa}.o")), None)
        return isa in (None, "avx2" if name.startswith("emulator_") else self.isa)

    def reads(self, source: str, file: str) -> bool:
        """Whether a source is `file` or includes it."""
        folder = self.tree / "/".join(file.split("/")[:2])
        seen: set[Path] = set()
        left = [Path(source)]
        while left:
            path = left.pop()
            if path not in seen and path.exists():
                seen.add(path)
                names = INCLUDE.findall(path.read_text())
                left += [each / name for name in names for each in (folder, path.parent)]
        return (self.tree / file).resolve() in {path.resolve() for path in seen}

    def rebuild_kernels(self, source: str, kernels: Collection[str] = ()) -> None:
        """Build the code object of one source of kernels anew; if any are named, with `kernels`
        alone. A warning, as of a parameter that the fault leaves unused, is no error. Raises
        `BuildFailedError`."""
        path = self.tree / source
        text = path.read_text()
        if kernels:
            path.write_text(only(self.tree, source, kernels))
        try:
            run((sys.executable, "-c", BUILD, "--arch", "gfx950", "--source", source, "--no-run"),
                self.tree, path=(self.tree,))  # fmt: skip
        finally:
            path.write_text(text)


def run(command: tuple[str, ...], folder: Path, path: tuple[Path, ...] = ()) -> Done:
    """Raises `BuildFailedError` with what the command printed last."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    done = finished(*command, cwd=folder, env=environment)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or ["?"]
        raise BuildFailedError(lines[0])
    return done
