"""Reasons that make a session red though no test failed: too many wave instructions or starts of
engines in all processes, and a skip that nothing explains."""

from __future__ import annotations

import pytest

from hk_backend.kernels import catalogue
from hk_backend.lab.timing.workloads import gemm
from tests import budget, starts
from tests.budget import OVER_BUDGET
from tests.models import ROOT
from tests.starts import MOST, TOO_MANY

pytest_plugins = "pytester"

BUDGET = """
from tests.budget import Ledger

def pytest_configure(config):
    config.addinivalue_line("markers", "slow: not in the budget")
    config.pluginmanager.register(Ledger(budget={budget}))
"""
LAUNCH = """
from hk_backend.kernels import catalogue
from hk_backend.lab.timing.workloads import gemm

def test():
    entry = catalogue("gfx950").kernel("gemm_bf16_256x256")
    gemm.launch(entry, gemm.small(entry)).run()
"""
STARTS = """
from tests.starts import Starts

def pytest_configure(config):
    config.pluginmanager.register(Starts(config, bounded=True))
"""
STARTING = """
import subprocess, sys
from tests.starts import note_start

def test_here():
    for _ in range({most}):
        note_start("an engine")

def test_in_another_process():
    code = "from tests.starts import note_start; note_start('another engine')"
    subprocess.run([sys.executable, "-c", code], check=True)
"""
SKIPS = """
from tests.conftest import *
import tests.conftest

tests.conftest.usable_isas = lambda: ["avx2", "portable"]
tests.conftest.architecture = lambda: "aarch64"
tests.conftest.builds = lambda python: python == "python3.12"
tests.conftest.find_spec = lambda name: None
"""


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=":")
    for shared in (budget.SHARED, starts.VARIABLE):
        monkeypatch.delenv(shared, raising=False)
    return pytester


def test_wave_instructions_of_all_workers(session: pytest.Pytester) -> None:
    """Each worker alone is within the budget, both together are not."""
    entry = catalogue("gfx950").kernel("gemm_bf16_256x256")
    one = gemm.launch(entry, gemm.small(entry)).run().counters.instructions
    session.makeconftest(BUDGET.format(budget=2 * one - 1))
    session.makepyfile(test_one=LAUNCH, test_two=LAUNCH)
    found = session.runpytest_subprocess("-p", "no:cacheprovider", "-n", "2")
    assert found.ret == OVER_BUDGET
    found.assert_outcomes(passed=2)
    total = f"*{2 * one / 1e6:.1f} M  "
    found.stdout.fnmatch_lines([f"{total}gemm gfx950", f"{total}in all, of *: OVER BUDGET"])


def test_starts_of_engines_in_all_processes(session: pytest.Pytester) -> None:
    session.makeconftest(STARTS)
    session.makepyfile(STARTING.format(most=MOST))
    found = session.runpytest_subprocess("-p", "no:cacheprovider")
    assert found.ret == TOO_MANY
    found.stdout.fnmatch_lines(["*1  another engine", "*: TOO MANY"])


def test_unexplained_skips(session: pytest.Pytester) -> None:
    """The machine lacks AVX-512, x86-64, Triton and one Python: only tests of these may skip."""
    session.makeconftest(SKIPS)
    session.makepyfile(
        test_plain="import pytest\ndef test_one():\n    pytest.skip('not today')",
        test_import="import pytest\npytest.importorskip('no_such_package')",
        test_isa="import pytest\n"
        "@pytest.mark.parametrize('isa', ['avx512', 'avx2'])\n"
        "def test_one(isa):\n"
        "    pytest.skip('no such instructions')",
        test_python="import pytest\n"
        "@pytest.mark.parametrize('python', ['python3.12', 'python3.13'])\n"
        "def test_one(python):\n"
        "    pytest.skip('no such Python')",
        test_x86="import pytest\n@pytest.mark.x86_64\ndef test_one(): assert False",
        test_triton="import pytest\n@pytest.mark.triton\ndef test_one(): assert False",
    )
    result = session.runpytest_subprocess("--continue-on-collection-errors")
    result.assert_outcomes(failed=3, errors=1, skipped=4)
    result.stdout.fnmatch_lines_random(
        ["*unexpected skip of test_plain.py::test_one*not today*", "*unexpected skip*test_import*"]
    )
