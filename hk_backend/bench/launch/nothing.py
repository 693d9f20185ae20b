"""A GPU that computes nothing: what is left of a call is the way to its launch."""

from __future__ import annotations

import torch

from hk_backend.devices.hip.device import HipDevice
from hk_backend.devices.hip.emulated import LIBRARY, EmulatedLibrary, loads
from hk_backend.devices.hip.memory import GpuMemory
from hk_backend.kernels import catalogue

ARCH = "gfx950"


class HostMemory(GpuMemory):
    """Tensors of the host, their addresses handed over as a GPU's would be."""

    tensors_on = "cpu"

    def torch_device(self, index: int) -> torch.device:
        return torch.device("cpu")

    def current_index(self) -> int:
        return 0

    def index(self, tensor: torch.Tensor) -> int:
        return 0

    def stream(self, index: int) -> int:
        return 0


def nothing_device() -> tuple[HipDevice, EmulatedLibrary]:
    """The hip device over the emulated library, whose launches return at once."""
    library = EmulatedLibrary(LIBRARY)
    library.reset(ARCH)
    library.run_launches(False)
    return HipDevice(library, catalogue(ARCH), HostMemory(), check=loads), library
