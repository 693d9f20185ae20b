"""Proofs, which are checks of a subject, and the records that they have.

A test with one of the markers of `KINDS` is a check of a subject: a kernel, or a case of an engine.
All its cases for one subject are one proof: they pass together or not.
"""

from __future__ import annotations

import functools
import importlib.metadata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from typing_extensions import Self

from hk_backend.kernels import KernelEntry
from tests.proof import product_digest
from tests.proof.cpp_source import meaning
from tests.proof.emulator_digest import emulator_digest, whole_emulator_digest
from tests.proof.kernel_digest import digest, kernel_digest, mnemonics
from tests.proof.records import Key, Record
from tests.proof.source_digest import PACKAGES, ROOT, source_digest


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


WITHOUT_PARAMETERS = "-"


@dataclass
class CaseProof(Proof):
    """A case of a test, whose subject are the test's parameters."""

    definitions: tuple[tuple[str, str], ...]
    """Module and name of the test and of its fixtures."""

    @property
    def test(self) -> str:
        return _digest_of(self.definitions)


def case_of(item: pytest.Item) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """The check and the case that an item is, and the test's definitions."""
    callspec = getattr(item, "callspec", None)
    case = (callspec.id if callspec else "") or WITHOUT_PARAMETERS
    file = item.path.relative_to(PACKAGES["tests"]).with_suffix("").as_posix()
    check = f"{file.removeprefix('integration/')}::{item.originalname}"  # type: ignore[attr-defined]
    return check, case, tuple(sorted(set(_definitions(item))))


SOURCE = "engine_{}"
"""The name of an engine's file of records."""
FOREIGN = "stock"
"""Name, in place of an engine's, of the records of others' GPU kernels."""


@dataclass
class EngineProof(CaseProof):
    """A case of an engine, "vllm" or "sglang"."""

    marker = "engine_proof"
    ran_by = "the product, or the version of the engine or of torch, has"
    engine: str
    foreign: bool = False
    """Whether the case runs others' GPU kernels in the emulator, and nothing of HK."""

    @classmethod
    def of(cls, item: pytest.Item) -> EngineProof:
        check, case, definitions = case_of(item)
        engine = "sglang" if check.startswith("hk_sglang/") else "vllm"
        marker = item.get_closest_marker(cls.marker)
        assert marker is not None
        foreign = bool(marker.kwargs.get("foreign"))
        source = SOURCE.format(FOREIGN if foreign else engine)
        return cls(Key(check, digest(case)), case, source, definitions, engine, foreign)

    @property
    def runtime(self) -> str:
        if self.foreign:
            compiler = importlib.metadata.version("triton")
            return digest(*product_digest.versions(self.engine), compiler, whole_emulator_digest())
        return product_digest.product_digest(self.engine)


EMULATORS = "emulators"
"""The file of records of checks of the emulators themselves."""


@dataclass
class SourceProof(CaseProof):
    """A case of a test of the GPU's emulator, or of host kernels on an emulated processor.

    `sources`: C++ folders, and files that the test reads, by their paths in the repository.
    """

    marker = "source_proof"
    ran_by = "the sources that it names have"
    sources: tuple[str, ...]

    @classmethod
    def of(cls, item: pytest.Item) -> SourceProof:
        check, case, definitions = case_of(item)
        marker = item.get_closest_marker(cls.marker)
        assert marker is not None
        return cls(Key(check, digest(case)), case, EMULATORS, definitions, marker.args)

    @property
    def runtime(self) -> str:
        return _digest_of_sources(self.sources)


@functools.cache
def _digest_of_sources(names: tuple[str, ...]) -> str:
    """The digest of folders' C++ without comments, and of files. Raises `ValueError` for none."""
    parts: list[str] = []
    for name in names:
        path = ROOT / name
        found = [path] if path.is_file() else sorted(path.rglob("*.[ch]pp"))
        if not found:
            raise ValueError(f"{name} is neither a file nor a folder of C++ of this project")
        for each in found:
            text = each.read_text()
            parts += [each.name, meaning(text) if each.suffix in (".cpp", ".hpp") else text]
    return digest(*parts)


@functools.cache
def _digest_of(definitions: tuple[tuple[str, str], ...]) -> str:
    return digest(*(source_digest(module, name) for module, name in definitions))


def _definitions(item: pytest.Item) -> Iterator[tuple[str, str]]:
    """The project's functions that pytest calls for a case."""
    functions: list[Any] = [item.function]  # type: ignore[attr-defined]
    fixtures: dict[str, Any] = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    functions += [fixture.func for each in fixtures.values() for fixture in each]
    for function in functions:
        if function.__module__.partition(".")[0] in PACKAGES:
            yield function.__module__, function.__qualname__.partition(".")[0]


KINDS: dict[str, type[Proof]] = {
    kind.marker: kind for kind in (KernelProof, EngineProof, SourceProof)
}
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
