"""The ledger counts what the emulator executes, in every worker, and is red above its budget."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from hk_backend import _emulator
from hk_backend.kernels import catalogue
from hk_backend.kernels.toolchain import sample_launch
from tests.budget import OVER_BUDGET

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
    monkeypatch.delenv("HK_TEST_LEDGER", raising=False)
    return pytester


def run(session: pytest.Pytester, budget: int, *options: str) -> pytest.RunResult:
    session.makeconftest(CONFTEST.format(budget=budget))
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
    budget = 2 * one_launch() - 1
    assert run(session, budget, "test_one.py").ret == pytest.ExitCode.OK
    second = run(session, budget, "test_two.py")
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
