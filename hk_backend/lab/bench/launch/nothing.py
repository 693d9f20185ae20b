"""A GPU device that computes nothing, so that a call takes only the path to its launch."""

from __future__ import annotations

from hk_backend.devices.hip.device import HipDevice
from hk_backend.devices.hip.emulated import LIBRARY, EmulatedLibrary, loads
from hk_backend.devices.hip.memory import HostMemory
from hk_backend.kernels import catalogue

ARCH = "gfx950"


def nothing_device() -> tuple[HipDevice, EmulatedLibrary]:
    """The hip device over the emulated library, whose launches return at once."""
    library = EmulatedLibrary(LIBRARY)
    library.reset(ARCH)
    library.run_launches(False)
    return HipDevice(library, catalogue(ARCH), HostMemory(), check=loads), library
