"""The controller of `make prove`.

It runs the groups of proofs one after another: of kernels, of each engine, of others' kernels and
of the emulators. When the last case of a proof has passed, it writes the record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import pytest
from rich.progress import Progress

from hk_backend.machine import cpu_model
from tests.proof import records
from tests.proof.plugin import Seen, cases_of
from tests.proof.proofs import EMULATORS, FOREIGN, SOURCE
from tests.proof.records import Key, Record
from tests.suite import parts


@dataclass(frozen=True)
class Group:
    """Proofs that one pytest runs.

    `paths`: where they lie. `spread`: how pytest-xdist hands them out. `sglang`: they need SGLang's
    environment, not vLLM's.
    """

    name: str
    paths: Sequence[str]
    spread: Sequence[str]
    sglang: bool = False

    def owns(self, source: str) -> bool:
        """Whether a file of records, by its name, holds this group's."""
        others = {EMULATORS, *(SOURCE.format(name) for name in ("vllm", "sglang", FOREIGN))}
        if self is KERNELS:
            return source not in others
        return source == (self.name if self is OF_EMULATORS else SOURCE.format(self.name))


ONE_BY_ONE = ("--dist", "load", "--maxschedchunk", "1")
BY_FILE = ("--dist", "loadfile")
"""Cases of one file share engines."""
KERNELS = Group("kernels", ("tests/kernels", "tests/devices/hip/test_self_check.py"), ONE_BY_ONE)
VLLM = Group("vllm", (*parts.VLLM, *parts.ROCM), BY_FILE)
SGLANG = Group("sglang", parts.SGLANG, BY_FILE, sglang=True)
STOCK = Group(FOREIGN, (*parts.STOCK, "tests/lab/foreign"), ONE_BY_ONE)
OF_EMULATORS = Group(EMULATORS, ("tests/emulator", "tests/cpu"), ONE_BY_ONE)
GROUPS = {group.name: group for group in (KERNELS, VLLM, SGLANG, STOCK, OF_EMULATORS)}


class Prover:
    """A pytest plugin of the controller alone.

    `estimates`: seconds of each proof that is to run; `workers`: processes that run them.
    """

    def __init__(self, progress: Progress, estimates: Mapping[Key, float], workers: int) -> None:
        self._progress = progress
        self._left = dict(estimates)
        self._workers = workers
        self._task = progress.add_task("", total=len(estimates))
        self._seen: dict[Key, Seen] = defaultdict(Seen)
        self._known: dict[str, dict[Key, Record]] = {}
        self.passed = 0
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
            self._progress.console.print(f"failed: {report.nodeid}", highlight=False)
        if report.when != "call":
            return
        for case in cases_of(report):
            key = Key(case["check"], case["subject"])
            if self._seen[key].add(case, report.passed):
                self._finish(key)

    def _finish(self, key: Key) -> None:
        seen = self._seen.pop(key)
        self._left.pop(key, None)
        minutes = sum(self._left.values()) / self._workers / 60
        self._progress.update(self._task, advance=1, description=f"about {minutes:.0f} min left")
        of_source = self._records(seen.first["source"])
        if seen.passed:
            self.passed += 1
            self._write(key, seen)
        elif of_source.pop(key, None):  # it passed once: make test must not believe it any longer
            records.write(seen.first["source"], of_source.values())

    def _write(self, key: Key, seen: Seen) -> None:
        case = seen.first
        of_source = self._records(case["source"])
        of_source[key] = Record(
            key.check, key.subject, case["test"], case["runtime"], seen.ran, seen.worst,
            seen.seconds, date.today().isoformat(), cpu_model(), case["name"],
        )  # fmt: skip
        records.write(case["source"], of_source.values())

    def _records(self, source: str) -> dict[Key, Record]:
        if source not in self._known:
            path = records.FOLDER / f"{source}.txt"
            self._known[source] = records.read_file(path) if path.is_file() else {}
        return self._known[source]

    def summary(self) -> str:
        """The number of proofs that passed, and of cases that failed."""
        return f"{self.passed} proofs passed and are recorded, {len(self.failed)} cases failed"
