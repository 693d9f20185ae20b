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
    """The library with two devices, nothing allocated and nothing reported."""
    loaded.reset("gfx950", 2)
    loaded.dll.hipGetLastError()
    yield loaded
    loaded.reset("gfx950", 1)


@pytest.fixture
def streams(library: EmulatedLibrary, monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """torch's current stream of each device; a test may replace them."""
    return current_streams(library, monkeypatch)


@pytest.fixture
def device(library: EmulatedLibrary, streams: dict[int, int]) -> OnTheHost:
    """The hip device with gfx950's kernels, and their self-checks counted as passed."""
    return OnTheHost(library, catalogue("gfx950"), check=lambda *_: SERVED)
