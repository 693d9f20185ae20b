"""The pytest plugin that stands between proofs and their records, in every process of a session.

HK_TEST_PROOF says how:
  `records`  A proof with a valid record does not run, except for a sample that the commit draws:
             some seconds of kernels' proofs, one case of each engine and of the emulators. One
             without a record is red, by name, and so is a repeat that differs from its record.
             `make test` sets this.
  `prove`    Proofs without a valid record run, longest first; the controller's `Prover` writes
             records.
Without it proofs are tests like any other.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.proof import measured, proofs, records
from tests.proof.measured import ENGINES_READ, MEASURED
from tests.proof.proofs import CaseProof, EngineProof, KernelProof, Proof
from tests.proof.records import Key, Record
from tests.seed import draw
from tests.suite.cost import process_seconds

VARIABLE = "HK_TEST_PROOF"
RECORDS, PROVE = "records", "prove"
ONLY = "HK_TEST_PROOF_ONLY"
FRESH = "HK_TEST_PROOF_FRESH"
FOLDER = "HK_TEST_PROOF_RECORDS"
"""The folder of records, for tests of this plugin."""
SAMPLE_SECONDS = 10.0
"""Recorded seconds of the kernels' proofs that `make test` repeats."""
SAMPLE_ENGINES = 2
"""Engines that the one repeated case of each engine's proofs may read."""
SAMPLE_CASE_SECONDS = 10.0
"""Recorded seconds of that case at most. Ranks that wait for each other cost several times more."""
PROPERTY = "proof"
DIFFERENT = 7
"""How pytest ends if a repeated proof differs from its record and no test failed."""
MOST_GROWTH = 1.25
"""How much larger a repeated worst error may be: random inputs differ in their last bits where
torch draws them with other vectors."""


@dataclass
class Seen:
    """The cases of one proof that have been reported, of how many, and their sums."""

    cases: int = 0
    passed: bool = True
    ran: int = 0
    worst: float = 0.0
    seconds: float = 0.0
    first: dict[str, Any] = field(default_factory=dict)

    def add(self, case: dict[str, Any], passed: bool) -> bool:
        """Whether this was the proof's last case."""
        self.first = self.first or case
        self.cases += 1
        self.passed &= passed
        self.ran += case["ran"]
        self.worst = max(self.worst, case["worst"])
        self.seconds += case["seconds"]
        return self.cases == case["of"]


class Proofs:
    """The hooks of every process."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self._folder = Path(os.environ.get(FOLDER, records.FOLDER))
        self.known = records.read(self._folder)
        self._stale: dict[str, str] = {}
        self._proofs: dict[str, Proof] = {}
        self._seen: dict[Key, Seen] = defaultdict(Seen)
        self._different: list[str] = []
        measured.count_launches()

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        chosen = self._chosen(proofs.proofs_of(items))
        kept = {item.nodeid for proof in chosen for item in proof.items}
        self._proofs = {item.nodeid: proof for proof in chosen for item in proof.items}
        rest = [
            i for i in items if i.nodeid not in kept and (self.mode == PROVE or proofs.is_proof(i))
        ]
        config.hook.pytest_deselected(items=rest)
        others = [] if self.mode == PROVE else [i for i in items if not proofs.is_proof(i)]
        items[:] = [*others, *(item for proof in chosen for item in proof.items)]

    def _chosen(self, found: dict[Key, Proof]) -> list[Proof]:
        """The proofs that are to run, longest first."""
        missing = proofs.invalid(found, self.known)
        if self.mode == PROVE:
            wanted = wanted_proofs(found, self.known)
        else:
            valid = [found[key] for key in found if key not in missing]
            sample = [*self._sample_of_kernels(valid), *self._sample_of_cases(valid)]
            for proof, why in missing.values():
                del proof.items[1:]  # one is enough to be red
                self._stale[proof.items[0].nodeid] = why
            wanted = [*sample, *(proof for proof, _ in missing.values())]
        by_check = proofs.mean_seconds(self.known)
        return sorted(wanted, key=lambda p: -proofs.seconds(p, self.known, by_check))

    def _sample_of_kernels(self, valid: list[Proof]) -> list[Proof]:
        kernels = [proof for proof in valid if isinstance(proof, KernelProof)]
        found: list[Proof] = []
        left = SAMPLE_SECONDS
        for proof in draw("repeated proofs").sample(kernels, len(kernels)):
            left -= self.known[proof.key].seconds
            if left < 0:
                break
            found.append(proof)
        return found

    def _sample_of_cases(self, valid: list[Proof]) -> list[Proof]:
        """The one case drawn from each file of records of cases, if it is in this part."""
        found: list[Proof] = []
        for source in {proof.source for proof in valid if isinstance(proof, CaseProof)}:
            records_of = records.read_file(self._folder / f"{source}.txt").values()
            few = sorted(
                record.key
                for record in records_of
                if record.cases <= SAMPLE_ENGINES and record.seconds <= SAMPLE_CASE_SECONDS
            )
            drawn = draw(f"repeated {source}").choice(few) if few else None
            found += [proof for proof in valid if proof.key == drawn]
        return found

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """A proof without a valid record is red before its fixtures start anything."""
        proof = self._proofs.get(item.nodeid)
        if proof and (why := self._stale.get(item.nodeid)):
            pytest.fail(f"{proof.key.check} of {proof.name}: {why}; run make prove", False)
        ENGINES_READ.clear()
        self._started = process_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        proof = self._proofs.get(item.nodeid)
        MEASURED.restart()
        try:
            return (yield)
        finally:
            if proof:
                engine = isinstance(proof, EngineProof)
                case = {
                    "check": proof.key.check,
                    "subject": proof.key.subject,
                    "test": proof.test,
                    "runtime": proof.runtime,
                    "source": proof.source,
                    "name": proof.name,
                    "of": len(proof.items),
                    "ran": len(ENGINES_READ) if engine else MEASURED.launches,
                    "worst": MEASURED.worst,
                    "seconds": process_seconds() - self._started,
                }
                item.user_properties.append((PROPERTY, case))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The controller compares what was repeated."""
        if self.mode != RECORDS or os.environ.get("PYTEST_XDIST_WORKER") or report.when != "call":
            return
        for case in cases_of(report):
            seen = self._seen[Key(case["check"], case["subject"])]
            if seen.add(case, report.passed) and seen.passed:
                self._compare(seen)

    def _compare(self, seen: Seen) -> None:
        key = Key(seen.first["check"], seen.first["subject"])
        record = self.known[key]
        allowed = record.worst * MOST_GROWTH + 1e-3
        if seen.ran != record.cases or seen.worst > allowed:
            falling = sum(other.check == key.check for other in self.known.values())
            self._different.append(
                f"{key.check} of {seen.first['name']}: {seen.ran} cases ran, worst error "
                f"{seen.worst:.3g}; its record says {record.cases} and {record.worst:.3g}. The "
                f"{falling} records of this check fall with it: make prove FRESH=1 ONLY={key.check}"
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._different and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = DIFFERENT

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self._different:
            terminalreporter.write_line(line, red=True)


def cases_of(report: pytest.TestReport) -> list[dict[str, Any]]:
    """The reports that a case of a proof made of itself; none for other tests."""
    found: list[Any] = [value for name, value in report.user_properties if name == PROPERTY]
    return found


def wanted_proofs(found: Mapping[Key, Proof], known: Mapping[Key, Record]) -> list[Proof]:
    """The proofs that `make prove` has to run; FRESH adds those with a valid record."""
    only = os.environ.get(ONLY, "")
    missing = found if os.environ.get(FRESH) else proofs.invalid(found, known)
    return [
        found[key]
        for key in missing
        if only in key.check or only in found[key].source or only in found[key].name
    ]
