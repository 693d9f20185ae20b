"""Results of a part's tests, read from pytest's report logs, and their summary."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.budget import OVER_BUDGET
from tests.proof.plugin import DIFFERENT
from tests.starts import MOST, TOO_MANY

OUTCOMES = ("passed", "failed", "skipped")
NO_TESTS = 5
WHY = {
    2: "interrupted",
    NO_TESTS: "no test was selected",
    OVER_BUDGET: "more wave instructions than tests/budget.py allows",
    DIFFERENT: "a repeated proof differs from its record",
    TOO_MANY: f"more than {MOST} starts of whole engines (tests/starts.py)",
}
"""Meanings of pytest's exit codes where no test failed."""
NOTE = "Part"


@dataclass
class Results:
    """Outcomes of one part's tests, and what they took.

    `core_minutes`: processor time of pytest and of all processes that it started and saw end;
    `seconds_by_file`: the share of it that passed in each test file.
    """

    part: str
    outcomes: dict[str, str] = field(default_factory=dict)
    minutes: float = 0.0
    core_minutes: float = 0.0
    seconds_by_file: Counter[str] = field(default_factory=Counter)
    _reasons: dict[str, str] = field(default_factory=dict)

    @property
    def failures(self) -> dict[str, str]:
        """Each failed test, and the first line of why."""
        failed = (name for name, outcome in self.outcomes.items() if outcome == "failed")
        return {name: self._reasons.get(name, "") for name in failed}

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.outcomes.values())

    def add(self, log: Path) -> None:
        """Add the outcomes of a session; the newer one counts for a test that ran again."""
        ended: dict[str, str] = {}
        finished = False
        for entry in _entries(log):
            kind = entry["$report_type"]
            finished = finished or kind == "SessionFinish"
            if kind in ("TestReport", "CollectReport"):
                self._add_report(entry, ended)
            elif kind == NOTE:
                self.outcomes |= ended
                self.minutes += entry["minutes"]
                self.core_minutes += entry["core_minutes"]
                self._end(entry["exit_code"], finished)
        self.outcomes |= ended

    def _add_report(self, entry: dict[str, Any], ended: dict[str, str]) -> None:
        """A phase of a test: the first that fails decides, one that skips if none does."""
        name, outcome = entry["nodeid"], entry["outcome"]
        if "process_seconds" in entry:
            self.seconds_by_file[name.partition("::")[0]] += entry["process_seconds"]
        if outcome == "failed" and ended.get(name) != "failed":
            ended[name], self._reasons[name] = outcome, _reason(entry)
        elif outcome == "skipped" or entry.get("when") == "teardown":
            ended.setdefault(name, outcome)

    def _end(self, exit_code: int, finished: bool) -> None:
        """pytest ended, its session `finished` or cut off: where no test's failure says why, the
        part itself fails."""
        name = f"({self.part})"
        self.outcomes.pop(name, None)
        nothing_left = exit_code == NO_TESTS and self.outcomes
        if finished and (exit_code == 0 or nothing_left or (exit_code == 1 and self.failures)):
            return
        cut_off = f"pytest ended {'' if finished else 'amid its session '}with {exit_code}"
        self.outcomes[name], self._reasons[name] = "failed", WHY.get(exit_code, cut_off)


def read(part: str, logs: Iterable[Path]) -> Results:
    """The results of `part` from the report logs of its sessions, the oldest first."""
    results = Results(part)
    for log in logs:
        results.add(log)
    return results


def _entries(log: Path) -> Iterator[dict[str, Any]]:
    """The log's lines; a process that was killed may have left half of one."""
    for line in log.read_text().splitlines() if log.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            yield json.loads(line)


def _reason(entry: dict[str, Any]) -> str:
    """The first line of why it failed."""
    longrepr = entry.get("longrepr")
    if isinstance(longrepr, dict):
        crash = longrepr.get("reprcrash") or {}
        longrepr = crash.get("message") or longrepr.get("longrepr")
    return next(iter(str(longrepr or "").strip().splitlines()), "")[:160]


def summary(parts: list[Results]) -> str:
    """Counts of each part and in total, every failure, and a last line with the total alone."""

    def columns(counts: Counter[str]) -> str:
        return "".join(f"{counts[outcome]:9}" for outcome in OUTCOMES)

    every = total(parts)
    lines = [f"{'':8}{''.join(f'{outcome:>9}' for outcome in OUTCOMES)}  minutes"]
    lines += [f"{part.part:8}{columns(part.counts)}{part.minutes:9.1f}" for part in parts]
    lines += [f"{'total':8}{columns(every)}"]
    for part in parts:
        lines += [f"FAILED {part.part}: {name} - {why}" for name, why in part.failures.items()]
    return "\n".join([*lines, ", ".join(f"{every[outcome]} {outcome}" for outcome in OUTCOMES)])


def total(parts: list[Results]) -> Counter[str]:
    return sum((part.counts for part in parts), Counter())
