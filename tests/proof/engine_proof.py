"""Proofs of engines: tests with the marker `engine_proof`, which start whole engines.

Each case, a test with its parameters, is a proof of its own. Its record holds for as long as the
test, the product and the engine's version stay as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.proof import product_digest
from tests.proof.kernel_digest import digest
from tests.proof.proof import Proof
from tests.proof.records import Key
from tests.proof.source_digest import PACKAGES, source_digest

SOURCE = "engine_{}"
"""The name of an engine's file of records."""
WITHOUT_PARAMETERS = "-"


@dataclass
class EngineProof(Proof):
    """A case of an engine, "vllm" or "sglang"."""

    marker = "engine_proof"
    ran_by = "the product, or the version of the engine or of torch, has"
    engine: str
    definitions: tuple[tuple[str, str], ...]
    """Module and name of the test and of its fixtures."""

    @classmethod
    def of(cls, item: pytest.Item) -> EngineProof:
        callspec = getattr(item, "callspec", None)
        case = callspec.id if callspec else WITHOUT_PARAMETERS
        file = item.path.relative_to(PACKAGES["tests"]).with_suffix("").as_posix()
        check = f"{file.removeprefix('integration/')}::{item.originalname}"  # type: ignore[attr-defined]
        engine = "sglang" if check.startswith("hk_sglang/") else "vllm"
        definitions = tuple(sorted(set(_definitions(item))))
        return cls(Key(check, digest(case)), case, SOURCE.format(engine), engine, definitions)

    @property
    def test(self) -> str:
        return _digest_of(self.definitions)

    @property
    def runtime(self) -> str:
        return product_digest.product_digest(self.engine)


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
