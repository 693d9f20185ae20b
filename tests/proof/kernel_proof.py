"""Proofs of kernels: tests with the marker `proof` and an argument `entry`, the kernel.

Kernels that share a digest share their proofs.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from hk_backend.kernels import KernelEntry
from tests.proof.emulator_digest import emulator_digest
from tests.proof.kernel_digest import kernel_digest, mnemonics
from tests.proof.proof import Proof
from tests.proof.records import Key
from tests.proof.source_digest import source_digest


@dataclass
class KernelProof(Proof):
    """A check of one kernel; its file of records has the name of the kernel's source."""

    marker = "proof"
    ran_by = "the emulator's semantics of its instructions have"
    entry: KernelEntry
    module: str
    function: str

    @classmethod
    def of(cls, item: pytest.Item) -> KernelProof:
        marker = item.get_closest_marker(cls.marker)
        assert marker is not None
        entry = item.callspec.params["entry"]  # type: ignore[attr-defined]
        assert isinstance(entry, KernelEntry), f"{item.nodeid}: marked {cls.marker!r}, no kernel"
        module, function = item.module.__name__, item.originalname  # type: ignore[attr-defined]
        with_types = bool(marker.kwargs.get("with_types", True))
        key = Key(f"{item.path.stem}::{function}", kernel_digest(entry, with_types=with_types))
        return cls(key, entry.name, entry.path.stem, entry, module, function)

    @property
    def test(self) -> str:
        return source_digest(self.module, self.function)

    @property
    def runtime(self) -> str:
        return emulator_digest(mnemonics(self.entry))
