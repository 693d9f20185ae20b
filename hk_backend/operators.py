"""Finds the parts of an operator: modules of its name, one in each room that knows operators.

`ops/<name>.py` has the public function, its checks and its declaration. `devices/cpu/<name>.py`
computes it on a CPU, and `devices/hip/<name>.py` on a GPU. `lab/timing/workloads/<name>.py` models
its kernels. Benchmarks and explanations are found in the same way, by the names of their commands.

A room asks for the part of a name, so that no list of operators has to be kept. Kernels ask by the
name of their family in the catalogue (`KernelEntry.operator`).
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType

_packages = ["hk_backend"]


@cache
def part(room: str, name: str) -> ModuleType | None:
    """The module `name` of a room, as in `part("devices.cpu", "linear")`; None if it has none."""
    for package in _packages:
        module = f"{package}.{room}.{name}"
        if _exists(module):
            return importlib.import_module(module)
    return None


def names(room: str) -> list[str]:
    """Names of all modules and packages of a room, sorted."""
    rooms = [f"{package}.{room}" for package in _packages]
    paths = [
        path for each in rooms if _exists(each) for path in importlib.import_module(each).__path__
    ]
    return sorted({module.name for module in pkgutil.iter_modules(paths)})


@contextmanager
def also_in(package: str) -> Iterator[None]:
    """Finds operators in another package, too, whose rooms have the same names."""
    _packages.append(package)
    part.cache_clear()
    try:
        yield
    finally:
        _packages.remove(package)
        part.cache_clear()


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError as error:
        if error.name and f"{module}.".startswith(f"{error.name}."):
            return False  # a package above it does not exist
        raise
