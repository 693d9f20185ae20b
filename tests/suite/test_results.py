"""The summary says what pytest saw: of tests that pass, fail, break, skip, or take the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suite.results import WHY, Results, note_end, read, summary

pytest_plugins = ["pytester"]

TESTS = """
import pytest

def test_passes(): pass
def test_fails(): assert 1 == 2, "not equal"
def test_skips(): pytest.skip("not here")

@pytest.fixture
def broken_end():
    yield
    raise RuntimeError("the end")

def test_breaks_afterwards(broken_end): pass
"""


def run(pytester: pytest.Pytester, log: Path, *arguments: str) -> None:
    done = pytester.runpytest_subprocess(f"--report-log={log}", *arguments)
    note_end(log, int(done.ret), 0.5)


def test_every_outcome_is_counted_once(pytester: pytest.Pytester, tmp_path: Path) -> None:
    pytester.makepyfile(test_all=TESTS, test_no_import="import no_such_package")
    run(pytester, tmp_path / "log", "--continue-on-collection-errors")
    results = read("units", [tmp_path / "log"])
    assert results.counts == {"passed": 1, "failed": 3, "skipped": 1}
    assert results.whole
    assert results.failures["test_all.py::test_fails"].startswith("AssertionError: not equal")
    assert results.failures["test_all.py::test_breaks_afterwards"] == "RuntimeError: the end"
    assert "test_no_import.py" in results.failures
    assert results.minutes == 0.5


@pytest.mark.parametrize(("code", "why"), WHY.items())
def test_a_part_over_a_budget_says_so(
    code: int, why: str, pytester: pytest.Pytester, tmp_path: Path
) -> None:
    pytester.makepyfile("def test_one(): pass")
    pytester.runpytest_subprocess(f"--report-log={tmp_path / 'log'}")
    note_end(tmp_path / "log", code, 0.1)
    results = read("rocm", [tmp_path / "log"])
    assert results.failures == {"(rocm)": why}
    assert results.counts == {"passed": 1, "failed": 1}
    assert results.whole


def test_a_process_that_dies_is_a_failure(pytester: pytest.Pytester, tmp_path: Path) -> None:
    pytester.makepyfile("import os\ndef test_one(): pass\ndef test_two(): os._exit(0)")
    pytester.runpytest_subprocess(f"--report-log={tmp_path / 'log'}")
    note_end(tmp_path / "log", -11, 0.1)
    results = read("vllm", [tmp_path / "log"])
    assert results.counts == {"passed": 1, "failed": 1}
    assert results.failures == {"(vllm)": "pytest ended amid its session with -11"}
    assert not results.whole


def test_a_worker_that_dies_is_its_test_s_failure(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    pytester.makepyfile("import os\ndef test_one(): pass\ndef test_two(): os._exit(3)")
    run(pytester, tmp_path / "log", "-n", "1")
    results = read("units", [tmp_path / "log"])
    assert results.counts == {"passed": 1, "failed": 1}
    [(name, why)] = results.failures.items()
    assert name.endswith("::test_two")
    assert "crashed" in why


def test_no_tests_are_a_failure_unless_all_are_finished(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    pytester.makepyfile("def test_one(): pass")
    logs = [tmp_path / "0", tmp_path / "1"]
    run(pytester, logs[1], "-k", "nothing")
    assert read("units", logs).failures == {"(units)": "no test was selected"}
    run(pytester, logs[0])
    assert read("units", logs).counts == {"passed": 1}


def test_half_a_line_is_left_out(pytester: pytest.Pytester, tmp_path: Path) -> None:
    pytester.makepyfile("def test_one(): pass\ndef test_two(): pass")
    run(pytester, tmp_path / "log")
    lines = (tmp_path / "log").read_text().splitlines()
    ends = [i for i, line in enumerate(lines) if '"when": "teardown"' in line]
    (tmp_path / "cut").write_text("\n".join(lines[: ends[1]]) + lines[ends[1]][:40])
    note_end(tmp_path / "cut", -9, 0.0)
    results = read("units", [tmp_path / "cut"])
    assert [name for name, how in results.outcomes.items() if how == "passed"] == [
        "test_half_a_line_is_left_out.py::test_one"
    ]
    assert not results.whole


def test_the_summary_has_every_failure_of_every_part() -> None:
    units = Results("units", {"a": "passed", "b": "failed"}, {"b": "AssertionError: 1"})
    vllm = Results("vllm", {"c": "failed", "d": "skipped"}, {"c": "KeyError: 'x'"})
    lines = summary([units, vllm]).splitlines()
    assert "FAILED units: b - AssertionError: 1" in lines
    assert "FAILED vllm: c - KeyError: 'x'" in lines
    assert lines[-1] == "1 passed, 2 failed, 1 skipped"
    assert [line.split()[:4] for line in lines[1:4]] == [
        ["units", "1", "1", "0"],
        ["vllm", "0", "1", "1"],
        ["total", "1", "2", "1"],
    ]
