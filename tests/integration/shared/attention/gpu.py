"""The emulated GPU as the GPU of this process, for the tests of either engine's attention."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hk_backend.devices.hip import device as hip
from hk_backend.devices.hip.emulated import LIBRARY, EmulatedLibrary
from hk_backend.kernels import catalogue
from hk_backend.terms.verdict import SERVED
from tests.devices.hip.device import OnTheHost, current_streams


@contextmanager
def emulated_gpu(patch: pytest.MonkeyPatch) -> Iterator[OnTheHost]:
    """A context in which `HK_DEVICE=hip` is an emulated GPU, whose kernels count as checked."""
    library = EmulatedLibrary(LIBRARY)
    library.reset("gfx950", 2)
    current_streams(library, patch)
    found = OnTheHost(library, catalogue("gfx950"))
    patch.setattr(found, "verify", lambda *_: SERVED)
    patch.setattr(hip, "hip_device", lambda: found)
    yield found
    library.reset("gfx950", 1)
