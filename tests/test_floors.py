"""Every import of the product goes down, by the floors of docs/architecture.md.

Also those that only a type checker follows, or that a function makes when it is called.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "hk_backend": ".",
    "hk_vllm": "integration",
    "hk_sglang": "integration",
    "bench_serving": ".",
}
"""Packages whose imports are followed, and the folder of each."""
ENGINES = ("vllm", "sglang")
LAB = "hk_backend.lab"
MEASURES = (LAB, "hk_backend.cli.app", "bench_serving")
"""Who may import the lab."""
WITHOUT_TORCH = ("hk_backend.kernels", f"{LAB}.toolchain")
SERVES = (
    "hk_vllm.plugin",
    "hk_sglang.plugin",
    *(f"hk_backend.{of}" for of in ("devices", "engine", "ops")),
)
IMPORT_EVERYTHING = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}."):
        importlib.import_module(module.name)
print(*sys.modules, sep="\\n")
"""
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
TORCH = re.compile(r"(torch|ATen|c10)/|(^|/)torch\.h$")


class Import(NamedTuple):
    file: Path
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.name}"


def floors(text: str) -> dict[str, int]:
    """The rooms of the table in docs/architecture.md and their floors, counted from the bottom."""
    rows = re.findall(r"^\| (\d+) \| (.+?) \|", text, re.MULTILINE)
    found: dict[str, int] = {}
    for floor, rooms in rows:
        for room in re.findall(r"`([\w./]+)`", rooms):
            found[room.rstrip("/").removesuffix(".py").replace("/", ".")] = int(floor)
    return found


def room_of(module: str, rooms: Mapping[str, int]) -> str | None:
    """The room that a module is in or is, if it is one of ours."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in rooms:
            return name
    return None


def imports(root: Path) -> Iterator[tuple[str, Import]]:
    """(importing module, what it imports), with the names behind `from ... import`."""
    for package, folder in PACKAGES.items():
        base = root / folder
        for path in sorted((base / package).rglob("*.py")):
            module = ".".join(path.relative_to(base).with_suffix("").parts)
            for node in ast.walk(ast.parse(path.read_text())):
                names: list[str] = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    assert not node.level, f"{path}:{node.lineno}: a relative import"
                    names = [f"{node.module}.{alias.name}" for alias in node.names]
                for name in names:
                    file = path.relative_to(root)
                    yield module.removesuffix(".__init__"), Import(file, node.lineno, name)


def upward_imports(root: Path, rooms: Mapping[str, int]) -> list[str]:
    """Imports of a room that is not below the importing one."""
    found = []
    for module, imported in imports(root):
        target = room_of(imported.name, rooms)
        if imported.name.split(".")[0] not in PACKAGES or target is None:
            continue
        room = room_of(module, rooms)
        if room is None:
            found.append(f"{imported.file} is in no room of docs/architecture.md")
        elif target != room and rooms[target] >= rooms[room]:
            found.append(f"{imported}: {target} is not below {room}")
    return found


def import_circle(root: Path) -> list[str]:
    """Modules that import each other in a circle, the first of them again at the end; or none."""
    every = list(imports(root))
    modules = {module for module, _ in every}
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for module, imported in every:
        names = imported.name, imported.name.rpartition(".")[0]
        target = next((name for name in names if name in modules), module)
        if target != module:
            graph[module].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return []


def foreign_imports(root: Path) -> list[str]:
    """Imports of engines below integration or by another plugin, of torch in the room of kernels,
    and of the lab."""
    found = []
    for module, imported in imports(root):
        name = imported.name.split(".")[0]
        if name in ENGINES and module.startswith("hk_backend"):
            found.append(f"{imported}: no engine below integration")
        plugin = module.split(".")[0]
        if name in ENGINES and plugin in ("hk_vllm", "hk_sglang") and plugin != f"hk_{name}":
            found.append(f"{imported}: a plugin knows its own engine only")
        if name == "torch" and module.startswith(WITHOUT_TORCH):
            found.append(f"{imported}: no torch in kernels/ and lab/toolchain/")
        if room_of(imported.name, {LAB: 0}) and not module.startswith(MEASURES):
            found.append(f"{imported}: nothing that serves knows {LAB}")
    return found


def foreign_includes(root: Path) -> list[str]:
    """Includes of kernels in the tile language, of torch outside bindings, and between rooms of
    csrc."""
    found = []
    csrc = root / "csrc"
    for path in sorted(csrc.rglob("*")):
        if path.suffix not in (".hpp", ".cpp", ".hip", ".h"):
            continue
        room = path.relative_to(csrc).parts[0]
        for name in INCLUDE.findall(path.read_text()):
            where = f"{path.relative_to(root)} includes {name}"
            if TORCH.search(name) and not path.name.startswith("bindings"):
                found.append(f"{where}: no torch in csrc but in bindings")
            target = included_room(csrc, path, name)
            if target is not None and target not in {room, *SEEN_FROM.get(room, ())}:
                found.append(f"{where}: {target}/ is not for {room}/")
    return found


ARGS = "include/hk/args"
"""Plain C++ for kernels and launcher: argument structs, and the grids that follow from them."""
SEEN_FROM = {"kernels": ("include", ARGS), "include": (ARGS,), "hip": (ARGS,)}
"""Rooms of csrc that another one includes from."""


def included_room(csrc: Path, path: Path, name: str) -> str | None:
    """The room of csrc that `name` lies in, if it is ours."""
    for folder in (path.parent, csrc / path.relative_to(csrc).parts[0], csrc, csrc / "include"):
        found = (folder / name).resolve()
        if found.is_file() and found.is_relative_to(csrc.resolve()):
            place = found.relative_to(csrc.resolve())
            return ARGS if place.is_relative_to(ARGS) else place.parts[0]
    return None


@pytest.fixture(scope="module")
def rooms() -> dict[str, int]:
    return floors((ROOT / "docs/architecture.md").read_text())


def test_every_room_has_a_floor(rooms: dict[str, int]) -> None:
    """The table names every room of hk_backend/ and beside it, and nothing else."""
    folders = {path for path in (ROOT / "hk_backend").iterdir() if (path / "__init__.py").is_file()}
    modules = {path for path in (ROOT / "hk_backend").glob("*.py") if path.name != "__init__.py"}
    there = {f"hk_backend.{path.stem}" for path in folders | modules}
    assert set(rooms) == there | {"hk_vllm", "hk_sglang", "bench_serving"}


def test_imports_go_down_and_no_room_knows_what_it_must_not(rooms: dict[str, int]) -> None:
    assert not upward_imports(ROOT, rooms)
    assert not import_circle(ROOT)
    assert not foreign_imports(ROOT)
    assert not foreign_includes(ROOT)


def test_what_serves_loads_nothing_of_the_lab() -> None:
    """Imports what an engine imports, in an interpreter of its own."""
    command = [sys.executable, "-c", IMPORT_EVERYTHING, *SERVES]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert set(SERVES) <= set(loaded)
    assert not [name for name in loaded if room_of(name, {LAB: 0})]


# --- deliberate violations, in a tree of their own ------------------------------------------------


def tree(root: Path, path: str, text: str) -> Path:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)
    return root


LAZY = "def f():\n    import vllm.config"
CHECKED = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from hk_backend.ops import x"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("hk_backend/reference/attention.py", "from hk_backend import ops"),
        ("hk_backend/reference/attention.py", "import hk_backend.ops.linear"),
        ("hk_backend/terms/requests.py", CHECKED),
        ("hk_backend/terms/verdict.py", "def f():\n    from hk_backend.config import get_config"),
        ("hk_backend/devices/hip/device.py", "from hk_backend.engine.attention import ROUTE"),
        ("hk_backend/ops/linear.py", "from hk_vllm import plugin"),
        ("hk_backend/lab/bench/rows.py", "from hk_backend.cli.app import main"),
        ("hk_backend/cli/status.py", "from hk_backend.lab.timing import model"),
        ("integration/hk_vllm/plugin.py", "def f():\n    import hk_backend.lab.bench"),
        ("hk_backend/lab/toolchain/build.py", "import torch"),
        ("integration/hk_vllm/plugin.py", "from hk_sglang import plugin"),
        ("hk_backend/attic/old.py", "from hk_backend import terms"),
        ("hk_backend/engine/attention.py", LAZY),
        ("integration/hk_vllm/plugin.py", "from sglang.srt import server_args"),
        ("hk_backend/kernels/grid.py", "import torch"),
        ("csrc/include/hk/ops/load.hpp", '#include "../../../kernels/gemm/shape.hpp"'),
        ("csrc/hip/grid.hpp", '#include "hk/types/vector.hpp"'),
        ("csrc/emulator/machine/wave.hpp", "#include <torch/extension.h>"),
        ("csrc/hip/kernel.hpp", "#  include <ATen/ATen.h>"),
        ("csrc/cpu/common/vec.hpp", '#include "kernels/gemm/shape.hpp"'),
    ],
)
def test_a_violation_is_seen(path: str, text: str, rooms: dict[str, int], tmp_path: Path) -> None:
    """One of the checks sees it, and names its place. `attic` is a room without a floor."""
    for header in ("kernels/gemm/shape.hpp", "include/hk/types/vector.hpp"):
        tree(tmp_path, f"csrc/{header}", "#pragma once")
    tree(tmp_path, path, text)
    upward = upward_imports(tmp_path, rooms)
    (found,) = [*upward, *foreign_imports(tmp_path), *foreign_includes(tmp_path)]
    assert path in found
    assert ("is in no room" in found) == ("attic" in path)
