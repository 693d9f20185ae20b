"""Fixtures and plugins of all tests. No test may skip, except for lack of instructions, of the
shipped code objects' compiler, of Triton, or of a Python to build for.

So the number of skips is known: none on a complete machine, elsewhere exactly the tests of what it
lacks. Any other skip is reported as a failure, also one at import: a missing package must not make
a test file vanish.
"""

from __future__ import annotations

import gc
import importlib.metadata
import logging
import os
from collections.abc import Generator
from importlib.util import find_spec
from platform import machine as architecture
from tempfile import TemporaryDirectory

import pytest

from hk_backend import machine
from hk_backend.devices.cpu.isas import LIMITS, usable_isas
from hk_backend.lab.toolchain import compiler
from hk_backend.lab.toolchain.compiler import Toolchain
from hk_backend.routing import metrics_directory
from tests import forked
from tests.budget import Ledger
from tests.install.pythons import builds
from tests.proof import plugin
from tests.seed import VARIABLE, seed
from tests.starts import Starts
from tests.suite.cost import Meter
from tests.suite.parts import NOT_SLOW


def pytest_configure(config: pytest.Config) -> None:
    # HK serves wherever it can: tests must not depend on what this machine's CPU is faster at
    os.environ.setdefault("HK_EVIDENCE", "ignore")
    # measurements of one test must not decide another, nor reach the user's own folder
    folder = TemporaryDirectory(prefix="hk-measurements-")
    if os.environ.setdefault("HK_CACHE_DIR", folder.name) == folder.name:
        config.add_cleanup(folder.cleanup)
    os.environ.update(machine.workarounds())  # before torch multiplies in bfloat16: it reads once
    mode = os.environ.get(plugin.VARIABLE, "")
    if mode:
        config.pluginmanager.register(plugin.Proofs(mode))
    if mode != plugin.PROVE:  # has no budget
        config.pluginmanager.register(Ledger())
    config.pluginmanager.register(Meter())
    bounded = mode == plugin.RECORDS and config.option.markexpr == NOT_SLOW
    config.pluginmanager.register(Starts(config, bounded=bounded))
    seed()  # before workers are started
    if any(name in os.environ for name in LIMITS):
        from bench_serving.isa import hide_instruction_sets

        hide_instruction_sets()


def pytest_report_header() -> str:
    return f"cases are drawn by {VARIABLE}={seed()}"


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Generator[forked.Programs, None, None]:
    """Programs in processes of their own, with torch and the operators imported."""
    with forked.programs(tmp_path_factory.mktemp("programs")) as found:
        yield found


@pytest.fixture(scope="session")
def tools() -> Toolchain:
    """The compiler of the GPU kernels, and LLVM's tools."""
    return compiler.find()


@pytest.fixture(autouse=True)
def own_logger() -> Generator[None, None, None]:
    """Restore our logger, which a registered plugin takes."""
    yield
    logging.getLogger("hk_backend").parent = logging.getLogger()


@pytest.fixture(autouse=True)
def same_variables() -> Generator[None, None, None]:
    """Fail a test that leaves HK_* variables changed: they would decide how later tests of the
    process run."""
    before = hk_variables()
    yield
    left = hk_variables()
    for name in before.keys() | left.keys():
        os.environ.pop(name, None)
    os.environ.update(before)
    assert left == before


def hk_variables() -> dict[str, str]:
    """All HK_* variables but the folder of metrics, which a process sets for its children."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("HK_") and name != metrics_directory.VARIABLE
    }


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Switch off garbage collection meanwhile: looking among imported modules takes a fifth of the
    time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if needs_x86_64(item):
        pytest.skip(f"an x86-64 processor is needed, this one is {architecture()}")
    if lacks_triton(item):
        pytest.skip("Triton is not installed: pip install '.[triton]'")
    if lacks_package(item):
        pytest.skip("the package has an environment of its own: docs/benchmarks.md")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    lacks = lacks_instructions, lacks_compiler, lacks_python, lacks_triton, lacks_package
    allowed = (needs_x86_64, *lacks)
    if report.skipped and not any(reason(item) for reason in allowed):
        make_red(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        make_red(report)
    return report


def make_red(report: pytest.TestReport | pytest.CollectReport) -> None:
    report.outcome = "failed"
    report.longrepr = f"unexpected skip of {report.nodeid}: {report.longrepr}"


def needs_x86_64(item: pytest.Item) -> bool:
    """Whether a test marked `x86_64` meets a processor of another architecture."""
    return item.get_closest_marker("x86_64") is not None and architecture() != "x86_64"


def lacks_instructions(item: pytest.Item) -> bool:
    """Whether a test parametrised by `isa` needs instructions that this machine does not have."""
    isa = parameter(item, "isa")
    return isa is not None and isa not in usable_isas()


def lacks_python(item: pytest.Item) -> bool:
    """Whether a test parametrised by `python`, a command, is about one that builds nothing here."""
    python = parameter(item, "python")
    return python is not None and not builds(python)


def lacks_package(item: pytest.Item) -> bool:
    """Whether the package of a test marked `package` is missing."""
    marker = item.get_closest_marker("package")
    if marker is None:
        return False
    try:
        importlib.metadata.version(marker.args[0])
    except importlib.metadata.PackageNotFoundError:
        return True
    return False


def lacks_triton(item: pytest.Item) -> bool:
    """Whether a test marked `triton` meets an environment without it."""
    return item.get_closest_marker("triton") is not None and find_spec("triton") is None


def parameter(item: pytest.Item, name: str) -> str | None:
    """The value that a parametrised test was given for `name`."""
    callspec = getattr(item, "callspec", None)
    return callspec.params.get(name) if callspec else None


def lacks_compiler(item: pytest.Item) -> bool:
    """Whether a test marked `same_compiler` meets one that did not make the catalogue."""
    if item.get_closest_marker("same_compiler") is None:
        return False
    from hk_backend.kernels import arches, catalogue
    from hk_backend.lab.toolchain import compiler

    made_by = {entry.compiler for arch in arches() for entry in catalogue(arch).kernels}
    return made_by != {compiler.find().version}
