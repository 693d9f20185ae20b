"""Wave instructions that `make test` may execute on the emulator: counted in every process, one
sum, red above the budget.

A pytest plugin that tests/conftest.py registers. The emulator itself counts each launch, in
instructions of a wave. They are put down to the kernel's operator and arch, and to the test's file;
small kernels of the tests are "tests". pytest-xdist's workers hand their counts to the controller.
Slow tests are not in the budget: a session with one of them only prints the table. Nor are engines,
whose emulated devices run in processes of their own.

Sessions of one `make test` share the budget through the file that HK_TEST_LEDGER names, a line for
each session: the one that exceeds it is red.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

BUDGET = 800_000_000
"""Wave instructions of a session without slow tests."""
FILES_SHOWN = 10
SHARED = "HK_TEST_LEDGER"
OVER_BUDGET = 6
"""How pytest ends then if no test failed: one more than its own exit codes."""


class Account(NamedTuple):
    """A user of instructions."""

    operator: str
    arch: str
    file: str


class Ledger:
    """The plugin's hooks, and the counts so far."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.budget = budget
        self.used: Counter[Account] = Counter()
        self.slow = False
        self._file = ""
        self._hip = HipCounts(self.add)
        count_launches(self.add)

    def add(self, kernel: str, arch: str, instructions: int) -> None:
        """Count a launch of `kernel` for the test that runs."""
        self.used[Account(operators(arch).get(kernel, "tests"), arch, self._file)] += instructions

    @property
    def total(self) -> int:
        return self.used.total()

    @property
    def over(self) -> bool:
        return self.total > self.budget and not self.slow

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._file = item.nodeid.partition("::")[0]
        self.slow = self.slow or item.get_closest_marker("slow") is not None
        self._hip.watch()
        try:
            return (yield)
        finally:
            self._hip.watch()
            self._hip.add_executed()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the counts of a worker of pytest-xdist that has finished."""
        self._take(getattr(node, "workeroutput", {}))  # a worker that crashed has none

    def _take(self, other: dict[str, Any]) -> None:
        """Add the counts of another process."""
        self.slow = self.slow or other.get("slow", False)
        for account, instructions in other.get("wave_instructions", ()):
            self.used[Account(*account)] += instructions

    def _share(self, path: Path, mine: str) -> None:
        """Tell the sessions that finish later, and learn from those before."""
        before = path.read_text().splitlines() if path.is_file() else []
        with path.open("a") as file:
            file.write(f"{mine}\n")
        for line in before:
            self._take(json.loads(line))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        mine = {
            "slow": self.slow,
            "wave_instructions": [[list(who), n] for who, n in self.used.items()],
        }
        if hasattr(session.config, "workeroutput"):  # a worker: the controller judges
            session.config.workeroutput.update(mine)
            return
        if path := os.environ.get(SHARED):
            self._share(Path(path), json.dumps(mine))
        if self.over and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = OVER_BUDGET

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.used:
            return
        terminalreporter.section("wave instructions on the emulator")
        for line in self.table():
            terminalreporter.write_line(line, red=self.over)

    def table(self) -> list[str]:
        """Lines that say which kernels and files used the instructions."""
        families: Counter[str] = Counter()
        files: Counter[str] = Counter()
        for account, instructions in self.used.items():
            families[f"{account.operator} {account.arch}"] += instructions
            files[account.file] += instructions
        shown = [*families.most_common(), *files.most_common(FILES_SHOWN)]
        limit = "with slow tests: no budget" if self.slow else f"of {millions(self.budget)}"
        verdict = ": OVER BUDGET" if self.over else ""
        return [
            *(f"{millions(instructions)}  {name}" for name, instructions in shown),
            f"{millions(self.total)}  in all, {limit.strip()}{verdict}",
        ]


def millions(instructions: int) -> str:
    return f"{instructions / 1e6:9.1f} M"


@functools.cache
def operators(arch: str) -> dict[str, str]:
    """Operators of the shipped kernels, by symbol."""
    from hk_backend.kernels import arches, catalogue

    if arch not in arches():
        return {}
    return {entry.symbol: entry.operator for entry in catalogue(arch).kernels}


Add = Callable[[str, str, int], None]
"""A function of kernel, arch and instructions."""


def count_launches(add: Add) -> None:
    """Make each launch on an emulated machine tell `add`."""
    from hk_backend import _emulator

    launch = _emulator.Machine.launch

    @functools.wraps(launch)
    def counted(machine: Any, kernel: Any, *args: Any, **kwargs: Any) -> Any:
        report = launch(machine, kernel, *args, **kwargs)
        add(kernel.name, machine.arch, report.counters.instructions)
        return report

    _emulator.Machine.launch = counted  # type: ignore[method-assign,assignment]


class HipCounts:
    """The launches of the emulator's HIP library, which adds them up until it is told to forget."""

    def __init__(self, add: Add) -> None:
        self._add = add
        self._library: Any = None
        self._arch = ""
        self._seen: dict[str, int] = {}

    def watch(self) -> None:
        """Wrap the library's methods once somebody has imported its module, so that nothing is
        forgotten uncounted."""
        module = sys.modules.get("hk_backend.devices.hip.emulated")
        if module is None or hasattr(module.EmulatedLibrary, "counted"):
            return
        library = module.EmulatedLibrary
        library.counted = True
        for name in ("reset", "forget_report"):
            setattr(library, name, self._settling(getattr(library, name)))

    def _settling(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def counted(library: Any, *args: Any, **kwargs: Any) -> Any:
            self.add_executed()
            self._library = library
            self._arch = args[0] if method.__name__ == "reset" else self._arch
            self._seen = {}
            return method(library, *args, **kwargs)

        return counted

    def add_executed(self) -> None:
        """Hand over what was executed since the last time."""
        if self._library is None:
            return
        for kernel, runs in self._library.report()["kernels"].items():
            executed = runs["counters"]["instructions"]
            self._add(kernel, self._arch, executed - self._seen.get(kernel, 0))
            self._seen[kernel] = executed
