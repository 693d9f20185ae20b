"""The emulator's HIP library, fresh for every test, and small kernels to launch on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hk_backend.devices.hip.emulated import LIBRARY, EmulatedLibrary
from hk_backend.kernels import Catalogue, catalogue
from hk_backend.lab.toolchain import compiler
from hk_backend.terms.verdict import SERVED
from tests.devices.hip.device import OnTheHost, current_streams
from tests.devices.hip.small_kernels import build_catalogue


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    return build_catalogue(tmp_path_factory.mktemp("small"), compiler.find())


@pytest.fixture(scope="session")
def loaded() -> EmulatedLibrary:
    return EmulatedLibrary(LIBRARY)


@pytest.fixture
def library(loaded: EmulatedLibrary) -> Iterator[EmulatedLibrary]:
    """Two devices, nothing allocated, nothing reported."""
    loaded.reset("gfx950", 2)
    loaded.dll.hipGetLastError()
    yield loaded
    loaded.reset("gfx950", 1)


@pytest.fixture
def streams(library: EmulatedLibrary, monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """torch's current stream of each device; to be exchanged."""
    return current_streams(library, monkeypatch)


@pytest.fixture
def device(library: EmulatedLibrary, streams: dict[int, int]) -> OnTheHost:
    """With gfx950's kernels, whose self-checks count as passed."""
    return OnTheHost(library, catalogue("gfx950"), check=lambda *_: SERVED)
