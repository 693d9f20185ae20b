"""Memory that the launches of a stream share: the sums that splits of a tile leave for each other.

It comes from torch's allocator, once for each GPU and stream, and never moves: a captured graph
holds its address. Launches of one stream do not overlap.
"""

from __future__ import annotations

import threading

import torch

from hk_backend.devices.hip.memory import Memory
from hk_backend.kernels.gemm_plan import MOST_TILES, PARTIAL_BYTES


class Workspaces:
    """By GPU and stream."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._made: dict[tuple[int, int], dict[str, torch.Tensor]] = {}

    def of(self, index: int) -> dict[str, torch.Tensor]:
        """That of torch's current stream on GPU `index`: `partial`, and `arrived`, all zeros
        between launches."""
        key = index, self._memory.stream(index)
        found = self._made.get(key)
        if found is None:
            with self._lock:
                found = self._made.setdefault(key, self._make(index))
        return found

    def _make(self, index: int) -> dict[str, torch.Tensor]:
        on = self._memory.torch_device(index)
        return {
            "partial": torch.empty(PARTIAL_BYTES // 4, dtype=torch.float32, device=on),
            "arrived": torch.zeros(MOST_TILES, dtype=torch.int32, device=on),
        }
