"""Addresses of tensors, and streams of launches: where a GPU and its emulator differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from hk_backend.devices.hip.call import Work


class GpuMemory:
    """Memory of all real GPUs of a device: torch's own addresses, without mapping or waiting.

    `index` is a GPU's number in HIP.
    """

    tensors_on = "cuda"  # ROCm's torch calls its devices cuda
    """Torch device type of the tensors."""
    is_direct = True
    """Whether the GPU uses torch's addresses, so that a launch needs no mapping."""

    def torch_device(self, index: int) -> torch.device:
        """Torch device that holds the tensors of a GPU."""
        return torch.device(self.tensors_on, index)

    def current_index(self) -> int:
        """Index of the GPU that torch currently works on."""
        return torch.cuda.current_device()

    def index(self, tensor: torch.Tensor) -> int:
        """Index of the GPU that holds a tensor."""
        index: int = tensor.device.index
        return index

    def stream(self, index: int) -> int:
        """Handle of the stream to launch on: torch's current one; 0 is the null stream."""
        handle: int = torch._C._cuda_getCurrentRawStream(index)  # ten times as fast as a Stream
        return handle

    @contextmanager
    def addresses(
        self, tensors: Mapping[str, torch.Tensor], work: Work
    ) -> Iterator[dict[str, int]]:
        """Maps tensors for the time of a launch that does `work`, and yields their addresses."""
        yield {name: tensor.data_ptr() for name, tensor in tensors.items()}


Memory = GpuMemory
"""Any memory: those of the emulator and of tests derive from a GPU's."""


class HostMemory(GpuMemory):
    """Host memory that stands in for one GPU's; its addresses are passed on as a GPU's."""

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
