"""What makes a session red of which no test failed: too many wave instructions, in all its workers
and those of other sessions, or starts of engines, whichever process they happen in."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from hk_backend import _emulator
from hk_backend.kernels import catalogue
from hk_backend.kernels.toolchain import sample_launch
from tests import budget, starts
from tests.budget import OVER_BUDGET
from tests.starts import MOST, TOO_MANY

pytest_plugins = "pytester"

CONFTEST = """
import pytest
from tests.budget import Ledger

def pytest_configure(config):
    config.addinivalue_line("markers", "slow: not in the budget")
    config.pluginmanager.register(Ledger(budget={budget}))
"""
LAUNCH = """
import pytest
from hk_backend.kernels import catalogue
from hk_backend.kernels.toolchain import sample_launch

def launch():
    entry = catalogue("gfx950").kernel("gemm_bf16_256x256")
    return sample_launch.run(entry, sample_launch.gemm(entry)).counters.instructions
"""
TWO_FILES = {
    "test_one": LAUNCH + "\ndef test(): launch()\n",
    "test_two": LAUNCH + "\ndef test(): launch()\n",
}
BY_HIP = """
import torch
from hk_backend import ops
from hk_backend.devices.hip.emulated import emulated_device
from tests.ops.cases import Case, make

CALL = make(Case(dtype=torch.bfloat16))

def executed():
    kernels = emulated_device("gfx950").library.report()["kernels"].values()
    return sum(runs["counters"]["instructions"] for runs in kernels)

def test_counted_once(request):
    (ledger,) = [p for p in request.config.pluginmanager.get_plugins() if hasattr(p, "used")]
    ops.attention_prefill(**CALL)
    before = executed()
    ledger._hip.settle()
    ledger._hip.settle()
    assert ledger.total == before > 0
    emulated_device("gfx950").library.forget_report()
    ops.attention_prefill(**CALL)
    ledger._hip.settle()
    assert ledger.total == before + executed()
    assert {key[:2] for key in ledger.used} == {("attention_prefill", "gfx950")}
"""


@functools.cache
def one_launch() -> int:
    entry = catalogue("gfx950").kernel("gemm_bf16_256x256")
    report: _emulator.Report = sample_launch.run(entry, sample_launch.gemm(entry))
    return report.counters.instructions


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.syspath_prepend(Path(__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=":")
    for shared in (budget.SHARED, starts.VARIABLE):
        monkeypatch.delenv(shared, raising=False)
    return pytester


def run(session: pytest.Pytester, limit: int, *options: str) -> pytest.RunResult:
    session.makeconftest(CONFTEST.format(budget=limit))
    return session.runpytest_subprocess("-p", "no:cacheprovider", *options)


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "worksteal")], ids=["one", "two"])
@pytest.mark.parametrize("over", [0, 1], ids=["within", "over"])
def test_the_sum_over_workers_is_judged(
    session: pytest.Pytester, workers: tuple[str, ...], over: int
) -> None:
    """Each worker alone is within the budget."""
    session.makepyfile(**TWO_FILES)
    found = run(session, 2 * one_launch() - over, *workers)
    assert found.ret == (OVER_BUDGET if over else pytest.ExitCode.OK)
    found.assert_outcomes(passed=2)
    total, verdict = f"{2 * one_launch() / 1e6:.1f} M", ": OVER BUDGET" * over
    files = [f"*{one_launch() / 1e6:.1f} M  test_one.py"]
    found.stdout.fnmatch_lines(
        [f"*{total}  gemm gfx950", *files, f"*{total}  in all, of *{verdict}"]
    )


def test_sessions_share_a_budget(
    session: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As the parts of `make test` do."""
    monkeypatch.setenv("HK_TEST_LEDGER", str(tmp_path / "ledger"))
    session.makepyfile(**TWO_FILES)
    limit = 2 * one_launch() - 1
    assert run(session, limit, "test_one.py").ret == pytest.ExitCode.OK
    second = run(session, limit, "test_two.py")
    assert second.ret == OVER_BUDGET
    second.stdout.fnmatch_lines(["*  test_one.py", "*: OVER BUDGET"])


def test_slow_tests_have_no_budget(session: pytest.Pytester) -> None:
    session.makepyfile(LAUNCH + "\n@pytest.mark.slow\ndef test(): launch()\n")
    found = run(session, 1)
    assert found.ret == pytest.ExitCode.OK
    found.stdout.fnmatch_lines(["*in all, with slow tests: no budget"])


def test_launches_of_the_hip_library(
    session: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HK_DEVICE", "emulated:gfx950")
    session.makepyfile(BY_HIP)
    assert run(session, 10**9).ret == pytest.ExitCode.OK


STARTS = """
from tests.starts import Starts

def pytest_configure(config):
    config.pluginmanager.register(Starts(config, bounded={bounded}))
"""
STARTING = """
import subprocess, sys
from tests.starts import note_start

def test_here():
    for _ in range({here}):
        note_start("an engine")

def test_in_another_process():
    code = "from tests.starts import note_start; note_start('another engine')"
    for _ in range({there}):
        subprocess.run([sys.executable, "-c", code], check=True)
"""


def start(
    session: pytest.Pytester, here: int, there: int, *, bounded: bool = True
) -> pytest.RunResult:
    session.makeconftest(STARTS.format(bounded=bounded))
    session.makepyfile(STARTING.format(here=here, there=there))
    return session.runpytest_subprocess("-p", "no:cacheprovider")


def test_more_than_allowed_are_red(session: pytest.Pytester) -> None:
    """Where there is a bound."""
    found = start(session, MOST - 1, 1)
    assert found.ret == pytest.ExitCode.OK
    found.stdout.fnmatch_lines([f"*{MOST}  in all of {MOST}"])
    found = start(session, MOST, 1)
    assert found.ret == TOO_MANY
    found.stdout.fnmatch_lines(["*1  another engine", "*: TOO MANY"])
    assert start(session, MOST, 1, bounded=False).ret == pytest.ExitCode.OK


def test_sessions_share_the_bound(
    session: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Several sessions share one count, as the parts of `make test` do."""
    monkeypatch.setenv(starts.VARIABLE, str(tmp_path / "starts"))
    assert start(session, MOST, 0).ret == pytest.ExitCode.OK
    assert start(session, 1, 0).ret == TOO_MANY
