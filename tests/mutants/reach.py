"""The tests that reach a line of Python, and their times: coverage.py's, recorded once.

pytest-cov names the test in whose course each line ran. A child of a test's process, forked or
started, gives its lines to that test as well: pytest keeps its name in the environment.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

CONFIGURATION = """
[run]
source =
    hk_backend
    integration
parallel = true
concurrency = multiprocessing,thread
context = ${{PYTEST_CURRENT_TEST-none}}
disable_warnings = no-data-collected
data_file = {data}
"""
ENDS = (" (setup)", " (call)", " (teardown)", "|setup", "|run", "|teardown")
LAST = 300
"""Characters at the end of a report log, in which pytest says that the session is over."""


class Reach:
    """One recording of the tree at `root`, kept in `folder`."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder, self.root = folder, root

    def has(self, number: int) -> bool:
        """Whether part `number` of the recording has come to its end."""
        log = self._log(number)
        return log.exists() and "SessionFinish" in log.read_text()[-LAST:]

    def arguments(self, number: int) -> list[str]:
        """pytest's, with which part `number` is recorded."""
        self.folder.mkdir(parents=True, exist_ok=True)
        rc = self.folder / f"rc-{number:02}"
        # a file for each part: pytest-cov deletes what the part before left in it
        data = self.folder / f"lines-{number:02}"
        rc.write_text(CONFIGURATION.format(data=data))
        quiet = ("--cov", "--cov-context=test", "--cov-report=")
        return [*quiet, f"--cov-config={rc}", f"--report-log={self._log(number)}"]

    def _log(self, number: int) -> Path:
        return self.folder / f"tests-{number:02}.jsonl"

    @cached_property
    def seconds(self) -> dict[str, float]:
        """How long each test took that passed."""
        found: dict[str, float] = defaultdict(float)
        failed = set()
        lines = (line for path in self.folder.glob("*.jsonl") for line in path.open())
        for line in lines:
            report = json.loads(line)
            if report.get("$report_type") == "TestReport":
                found[report["nodeid"]] += report["duration"]
                if report["outcome"] != "passed":
                    failed.add(report["nodeid"])
        return {name: time for name, time in found.items() if name not in failed}

    @cached_property
    def _lines(self) -> dict[str, dict[int, set[str]]]:
        """The tests that run each line of each file."""
        from coverage import CoverageData  # only the environment of `make mutants` has it

        found: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for path in self.folder.glob("lines-*"):
            data = CoverageData(str(path))
            data.read()
            for file in data.measured_files():
                name = str(Path(file).relative_to(self.root))
                for line, contexts in data.contexts_by_lineno(file).items():
                    found[name][line] |= {test_of(each) for each in contexts} & self.seconds.keys()
        return found

    def tests(self, file: str, lines: Iterable[int]) -> list[str]:
        """The tests that run one of `lines` of `file`, one case of each function first, the
        shortest first."""
        names = set().union(*(self._lines[file][line] for line in lines))
        by_time = sorted(names, key=lambda name: (self.seconds[name], name))
        functions: dict[str, str] = {}
        for name in by_time:
            functions.setdefault(name.partition("[")[0], name)
        firsts = set(functions.values())
        return sorted(firsts, key=by_time.index) + [name for name in by_time if name not in firsts]


def test_of(context: str) -> str:
    """The test that a context of coverage.py's names: `none|tests/x.py::test_y[1]|run`."""
    for part in context.split("none|"):
        for end in ENDS:
            if part.endswith(end):
                return part.removesuffix(end)
    return ""
