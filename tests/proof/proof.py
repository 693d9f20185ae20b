"""The part that both kinds of proofs share: a check of a subject, and the digests of its record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from typing_extensions import Self

from tests.proof.records import Key, Record


@dataclass
class Proof(ABC):
    """A check of one subject, with all its cases.

    `name`: the subject's. `source`: the name of the file of its records.
    """

    marker: ClassVar[str]
    ran_by: ClassVar[str]
    """The sources that `runtime` is a digest of."""
    key: Key
    name: str
    source: str
    items: list[pytest.Item] = field(default_factory=list, kw_only=True)

    @classmethod
    @abstractmethod
    def of(cls, item: pytest.Item) -> Self:
        """The proof that `item` is a case of, still without cases."""

    @property
    @abstractmethod
    def test(self) -> str:
        """The digest of the test, and of what it can reach."""

    @property
    @abstractmethod
    def runtime(self) -> str:
        """The digest of the sources that run the subject."""

    def why_invalid(self, record: Record | None) -> str:
        """Why `record` does not prove this; empty if it does."""
        if record is None:
            return "no record"
        if record.test != self.test:
            return "its test has changed"
        if record.runtime != self.runtime:
            return f"{self.ran_by} changed"
        return ""
