"""The outcome of each fault: a line of `results.txt`, by room, with these columns.

`outcome`    The worst that can be said of the tests.
    `test`        A test of `make test` fails; for a kernel without a record, its proof.
    `record`      `make test` is red as a record is missing, but the proof passes again.
    `prove`       Only a test that `make test` leaves out fails.
    `survives`    Nothing fails.
    `equivalent`  Nothing can: the fault's file says why.
    `stale`       Its text has gone.
`commit`     The last one that changed anything but faults, results and documents.
`seconds`    Processor time of the tests that ran.
`room, key`  The fault: `make mutants ONLY=key` runs it again.
`by`         The first test that failed, or other evidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.fault import Fault

FILE = Path(__file__).with_name("results.txt")
OUTCOMES = ("test", "record", "prove", "survives", "equivalent", "stale")


@dataclass(frozen=True)
class Result:
    """A line of the results."""

    outcome: str
    commit: str
    seconds: float
    room: str
    key: str
    by: str

    def line(self) -> str:
        columns = f"{self.outcome:10} {self.commit} {self.seconds:5.0f} {self.room:10} {self.key}"
        return f"{columns}  {self.by}".rstrip()


def read(file: Path = FILE) -> dict[str, Result]:
    """Outcomes by key; empty if there is no file."""
    found = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        outcome, commit, seconds, room, key, *by = line.split(maxsplit=5)
        found[key] = Result(outcome, commit, float(seconds), room, key, " ".join(by))
    return found


def write(results: Iterable[Result], faults: Iterable[Fault], file: Path = FILE) -> None:
    """Write outcomes in the order of the faults; those of faults that are gone are dropped."""
    by_key = {result.key: result for result in results}
    lines = [by_key[fault.key].line() for fault in faults if fault.key in by_key]
    file.write_text("".join(f"{line}\n" for line in lines))


def table(results: Iterable[Result]) -> list[str]:
    """The number of each room's faults that had each outcome."""
    counts = Counter((each.room, each.outcome) for each in results)
    rooms = list(dict.fromkeys(room for room, _ in counts))
    rows = [f"| room | faults | {' | '.join(OUTCOMES)} |", "|---" * (len(OUTCOMES) + 2) + "|"]
    for room in (*rooms, "all"):
        of = [
            sum(n for (r, o), n in counts.items() if room in (r, "all") and o == outcome)
            for outcome in OUTCOMES
        ]
        rows.append(f"| {room} | {sum(of)} | {' | '.join(str(n or '') for n in of)} |")
    return rows
