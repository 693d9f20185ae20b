"""The proofs among tests, the kernels that they are about, and the records that they have.

A test with the marker `proof` and an argument `entry`, a kernel, is a check of that kernel. All its
cases for one kernel, or for kernels that share a digest, are one proof: they pass together or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from hk_backend.kernels import KernelEntry
from tests.proof.emulator_digest import emulator_digest
from tests.proof.kernel_digest import kernel_digest, mnemonics
from tests.proof.records import Key, Record
from tests.proof.source_digest import source_digest

MARKER = "proof"
UNKNOWN_SECONDS = 10.0
"""Estimate for a check that no record knows."""


@dataclass
class Proof:
    """A check of one kernel, with all its cases, and the digests that its record must have."""

    key: Key
    entry: KernelEntry
    module: str
    function: str
    items: list[pytest.Item] = field(default_factory=list)

    @property
    def test(self) -> str:
        return source_digest(self.module, self.function)

    @property
    def emulator(self) -> str:
        return emulator_digest(mnemonics(self.entry))

    @property
    def source(self) -> str:
        """The name of the kernel's source file, and of its file of records."""
        return self.entry.path.stem

    def why_invalid(self, record: Record | None) -> str:
        """Why `record` does not prove this; empty if it does."""
        if record is None:
            return "no record"
        if record.test != self.test:
            return "its test has changed"
        if record.emulator != self.emulator:
            return "the emulator's semantics of its instructions have changed"
        return ""


def is_proof(item: pytest.Item) -> bool:
    """Whether an item is a case of a proof."""
    return item.get_closest_marker(MARKER) is not None


def proofs_of(items: Iterable[pytest.Item]) -> dict[Key, Proof]:
    """The proofs among `items`. Where kernels share a digest, the first by name stands for all."""
    found: dict[Key, Proof] = {}
    for item in sorted(filter(is_proof, items), key=lambda item: _entry(item).name):
        entry, key = _entry(item), key_of(item)
        module, function = item.module.__name__, item.originalname  # type: ignore[attr-defined]
        proof = found.setdefault(key, Proof(key, entry, module, function))
        if proof.entry == entry:
            proof.items.append(item)
    return found


def key_of(item: pytest.Item) -> Key:
    """The check and the kernel that a case is about."""
    marker = item.get_closest_marker(MARKER)
    assert marker is not None
    check = f"{item.path.stem}::{item.originalname}"  # type: ignore[attr-defined]
    with_types = bool(marker.kwargs.get("with_types", True))
    return Key(check, kernel_digest(_entry(item), with_types=with_types))


def invalid(
    proofs: Mapping[Key, Proof], records: Mapping[Key, Record]
) -> dict[Key, tuple[Proof, str]]:
    """The proofs that have no valid record, each with the reason."""
    reasons = {key: proof.why_invalid(records.get(key)) for key, proof in proofs.items()}
    return {key: (proofs[key], why) for key, why in reasons.items() if why}


def seconds(proof: Proof, records: Mapping[Key, Record], by_check: Mapping[str, float]) -> float:
    """How long a proof takes, by its record, or by those of its check for other kernels."""
    if record := records.get(proof.key):
        return record.seconds
    return by_check.get(proof.key.check, UNKNOWN_SECONDS)


def mean_seconds(records: Mapping[Key, Record]) -> dict[str, float]:
    """How long a check takes for a kernel, on average."""
    sums: dict[str, list[float]] = {}
    for record in records.values():
        sums.setdefault(record.check, []).append(record.seconds)
    return {check: sum(each) / len(each) for check, each in sums.items()}


def _entry(item: pytest.Item) -> KernelEntry:
    entry = item.callspec.params["entry"]  # type: ignore[attr-defined]
    assert isinstance(entry, KernelEntry), f"{item.nodeid} is marked {MARKER!r} without a kernel"
    return entry
