"""The proofs among tests, and the records that they have.

A test with one of the markers of `KINDS` is a check of a subject: a kernel, or a case of an engine.
All its cases for one subject are one proof: they pass together or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from tests.proof.engine_proof import EngineProof
from tests.proof.kernel_proof import KernelProof
from tests.proof.proof import Proof
from tests.proof.records import Key, Record

KINDS: dict[str, type[Proof]] = {kind.marker: kind for kind in (KernelProof, EngineProof)}
UNKNOWN_SECONDS = 10.0
"""Estimate for a check that no record knows."""


def is_proof(item: pytest.Item) -> bool:
    """Whether an item is a case of a proof."""
    return _kind(item) is not None


def proofs_of(items: Iterable[pytest.Item]) -> dict[Key, Proof]:
    """The proofs among `items`. Where subjects share a digest, the first by name stands for all."""
    cases = [(kind.of(item), item) for item in items if (kind := _kind(item))]
    found: dict[Key, Proof] = {}
    for case, item in sorted(cases, key=lambda each: each[0].name):
        proof = found.setdefault(case.key, case)
        if proof.name == case.name:
            proof.items.append(item)
    return found


def invalid(
    proofs: Mapping[Key, Proof], records: Mapping[Key, Record]
) -> dict[Key, tuple[Proof, str]]:
    """The proofs that have no valid record, each with the reason."""
    reasons = {key: proof.why_invalid(records.get(key)) for key, proof in proofs.items()}
    return {key: (proofs[key], why) for key, why in reasons.items() if why}


def seconds(proof: Proof, records: Mapping[Key, Record], by_check: Mapping[str, float]) -> float:
    """How long a proof takes, by its record, or by those of its check for other subjects."""
    if record := records.get(proof.key):
        return record.seconds
    return by_check.get(proof.key.check, UNKNOWN_SECONDS)


def mean_seconds(records: Mapping[Key, Record]) -> dict[str, float]:
    """How long a check takes for a subject, on average."""
    sums: dict[str, list[float]] = {}
    for record in records.values():
        sums.setdefault(record.check, []).append(record.seconds)
    return {check: sum(each) / len(each) for check, each in sums.items()}


def _kind(item: pytest.Item) -> type[Proof] | None:
    return next((kind for name, kind in KINDS.items() if item.get_closest_marker(name)), None)
