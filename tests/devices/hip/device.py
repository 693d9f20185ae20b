"""The hip device on top of the emulated library: only the GPU is missing.

torch's current device and streams are faked. The emulator gives a tensor's address, since a tensor
of the host has none on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from hk_backend.devices.hip.call import KernelCall, Work
from hk_backend.devices.hip.device import HipDevice
from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.devices.hip.memory import GpuMemory
from hk_backend.kernels import Catalogue
from tests.devices.hip.hip_calls import stream


class MappedMemory(GpuMemory):
    """Memory whose tensors stay mapped until the test ends: a launch returns before it has run."""

    tensors_on = "cpu"
    is_direct = False

    def __init__(self, library: EmulatedLibrary, index: int) -> None:
        self.library = library
        self.index_of_all = index
        self.kept: list[Mapping[str, torch.Tensor]] = []
        """Tensors kept alive for a graph, as torch's allocator keeps them."""

    def torch_device(self, index: int) -> torch.device:
        return torch.device("cpu")

    def index(self, tensor: torch.Tensor) -> int:
        return self.index_of_all

    @contextmanager
    def addresses(
        self, tensors: Mapping[str, torch.Tensor], work: Work
    ) -> Iterator[dict[str, int]]:
        self.kept.append(tensors)
        with self.library.current(self.index_of_all):
            yield {
                name: self.library.map(tensor, name)
                for name, tensor in tensors.items()
                if tensor.numel()
            }


class OnTheHost(HipDevice):
    """The unchanged device, with its tensors in host memory."""

    def __init__(
        self, library: EmulatedLibrary, kernels: Catalogue, index: int = 0, **more: Any
    ) -> None:
        self.mapped = MappedMemory(library, index)
        super().__init__(library, kernels, self.mapped, **more)


class SynchronisesInChecks(OnTheHost):
    """A device whose self-checks wait for the GPU. On a real GPU a tensor's `.cpu()` waits; for a
    tensor on the host it does not."""

    def launch(self, call: KernelCall, index: int) -> None:
        super().launch(call, index)
        if not self.is_capturing():
            self.library.synchronise(self.memory.stream(index))


def current_streams(library: EmulatedLibrary, monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """torch's current stream of two devices, of which the first is current; a test may replace
    them."""
    current = {0: stream(library)}
    with library.current(1):
        current[1] = stream(library)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(
        torch._C, "_cuda_getCurrentRawStream", lambda index: current[index], raising=False
    )
    return current
