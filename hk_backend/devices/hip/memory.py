"""Where a device finds tensors, and the stream of its launches: the differences between a GPU and
its emulator.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch

from hk_backend.devices.hip.call import KernelCall


class Memory(Protocol):
    """The tensors and streams of all GPUs of a device; `index` is a GPU as HIP counts."""

    tensors_on: str
    """The torch device type of the tensors."""
    is_direct: bool
    """Whether the GPU finds a tensor where torch does, and a launch needs nothing around it."""

    def torch_device(self, index: int) -> torch.device:
        """Where torch keeps the tensors of a GPU."""

    def current_index(self) -> int:
        """The GPU that torch works on."""

    def index(self, tensor: torch.Tensor) -> int:
        """The GPU of a tensor."""

    def stream(self, index: int) -> int:
        """The handle of the stream to launch on."""

    @contextmanager
    def addresses(self, call: KernelCall) -> Iterator[dict[str, int]]:
        """Where the GPU finds each tensor, around the launch."""
        yield {}


class GpuMemory:
    """Torch's own, on a real GPU: nothing to do, and nothing waits."""

    tensors_on = "cuda"  # as ROCm's torch says
    is_direct = True

    def torch_device(self, index: int) -> torch.device:
        return torch.device(self.tensors_on, index)

    def current_index(self) -> int:
        return torch.cuda.current_device()

    def index(self, tensor: torch.Tensor) -> int:
        index: int = tensor.device.index
        return index

    def stream(self, index: int) -> int:
        """Torch's current one; 0 is its default, the null stream."""
        handle: int = torch._C._cuda_getCurrentRawStream(index)  # ten times as fast as the Stream
        return handle

    @contextmanager
    def addresses(self, call: KernelCall) -> Iterator[dict[str, int]]:
        yield {name: tensor.data_ptr() for name, tensor in call.tensors.items()}


class HostMemory(GpuMemory):
    """The host's, in the place of one GPU's: its addresses are handed over as a GPU's would be."""

    tensors_on = "cpu"

    def torch_device(self, index: int) -> torch.device:
        return torch.device("cpu")

    def current_index(self) -> int:
        return 0

    def index(self, tensor: torch.Tensor) -> int:
        return 0

    def stream(self, index: int) -> int:
        return 0


def spanned_bytes(tensor: torch.Tensor) -> int:
    """Bytes from the first to the last element of a view, ends included."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in pairs)
    return (last + 1) * tensor.element_size() if tensor.numel() else 0
