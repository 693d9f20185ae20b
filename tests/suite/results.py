"""What a part's tests came to, read from pytest's report logs; and how it is shown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.budget import OVER_BUDGET
from tests.starts import MOST, TOO_MANY

OUTCOMES = ("passed", "failed", "skipped")
ENDS = ("teardown", "???")
"""The phases of a report that end a test; pytest-xdist gives the second if a process crashed."""
INTERRUPTED, NO_TESTS = 2, 5
"""Exit codes of pytest."""
WHY = {
    OVER_BUDGET: "more wave instructions than tests/budget.py allows",
    TOO_MANY: f"more than {MOST} starts of whole engines (tests/starts.py)",
}
"""Of a session that came to its end, no test failed."""
NOTE = "Part"


@dataclass
class Results:
    """Of one part: each ended test's outcome, why each failure failed, and how pytest ended.

    `core_minutes`: processor time of pytest and of all processes that it started and saw end;
    `seconds_by_file`: the share of it that passed in each test file.
    """

    part: str
    outcomes: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    minutes: float = 0.0
    core_minutes: float = 0.0
    seconds_by_file: Counter[str] = field(default_factory=Counter)
    whole: bool = False
    """Whether its last session came to its end."""

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.outcomes.values())

    def note(self, name: str, outcome: str, why: str) -> None:
        """A test's outcome; of one that ran again the new one."""
        self.outcomes[name] = outcome
        self.failures.pop(name, None)
        if outcome == "failed":
            self.failures[name] = why

    def end(self, exit_code: int, finished: bool, minutes: float) -> None:
        """pytest ended, its session `finished` or cut off; the part itself fails where no test's
        failure says why."""
        self.minutes += minutes
        nothing_left = exit_code == NO_TESTS and bool(self.outcomes)
        self.whole = finished and (exit_code in (0, 1, *WHY) or nothing_left)
        name = f"({self.part})"
        self.outcomes.pop(name, None)
        self.failures.pop(name, None)
        if not self.whole or (exit_code and not nothing_left and not self.failures):
            why = {
                NO_TESTS: "no test was selected",
                INTERRUPTED: "interrupted",
                **WHY,
            }
            cut_off = f"pytest ended {'' if finished else 'amid its session '}with {exit_code}"
            self.note(name, "failed", why.get(exit_code, cut_off))


def read(part: str, logs: Iterable[Path]) -> Results:
    """The results of `part` from the report logs of its sessions, oldest first."""
    results = Results(part)
    for log in logs:
        _read_log(log, results)
    return results


def _read_log(log: Path, results: Results) -> None:
    running: dict[str, tuple[str, str]] = {}
    finished = False
    for entry in _entries(log):
        kind = entry["$report_type"]
        finished = finished or kind == "SessionFinish"
        if kind == NOTE:
            results.end(entry["exit_code"], finished, entry["minutes"])
            results.core_minutes += entry["core_minutes"]
        if kind not in ("TestReport", "CollectReport"):
            continue
        name, outcome = entry["nodeid"], entry["outcome"]
        if "process_seconds" in entry:
            results.seconds_by_file[name.partition("::")[0]] += entry["process_seconds"]
        if outcome != "passed" and running.get(name, ("",))[0] != "failed":
            running[name] = outcome, _reason(entry)
        if outcome == "failed" if kind == "CollectReport" else entry["when"] in ENDS:
            results.note(name, *running.pop(name, ("passed", "")))


def _entries(log: Path) -> Iterator[dict[str, Any]]:
    """The log's lines; a process that was killed may have left half of one."""
    for line in log.read_text().splitlines() if log.exists() else ():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


def _reason(entry: dict[str, Any]) -> str:
    """The first line of why it failed."""
    longrepr = entry.get("longrepr")
    if isinstance(longrepr, dict):
        crash = longrepr.get("reprcrash") or {}
        longrepr = crash.get("message") or longrepr.get("longrepr")
    lines = str(longrepr or "").strip().splitlines()
    return lines[0][:160] if lines else ""


def note_end(log: Path, exit_code: int, minutes: float, core_minutes: float = 0.0) -> None:
    """Write down at the end of `log` how its session ended, and what it took."""
    entry = {
        "$report_type": NOTE,
        "exit_code": exit_code,
        "minutes": minutes,
        "core_minutes": core_minutes,
    }
    with log.open("a") as file:
        file.write(f"\n{json.dumps(entry)}\n")


def summary(parts: list[Results]) -> str:
    """Counts of each part and in total, every failure, and a last line with the total alone."""
    all_counts = total(parts)
    lines = [f"{'':8}{''.join(f'{outcome:>9}' for outcome in OUTCOMES)}  minutes"]
    lines += [f"{part.part:8}{_columns(part.counts)}{part.minutes:9.1f}" for part in parts]
    lines += [f"{'total':8}{_columns(all_counts)}"]
    for part in parts:
        lines += [f"FAILED {part.part}: {name} - {why}" for name, why in part.failures.items()]
    lines += [", ".join(f"{all_counts[outcome]} {outcome}" for outcome in OUTCOMES)]
    return "\n".join(lines)


def total(parts: list[Results]) -> Counter[str]:
    return sum((part.counts for part in parts), Counter())


def _columns(counts: Counter[str]) -> str:
    return "".join(f"{counts[outcome]:9}" for outcome in OUTCOMES)
