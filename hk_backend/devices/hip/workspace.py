"""Memory that the launches of a stream share, for partial sums of tiles and parts of attention.

It comes from torch's allocator when a weight is packed, or when attention first needs more. It
serves all layers, as launches of one stream do not overlap.

A captured graph holds its address, so memory that a launch has used is never freed. Graphs that
were captured on one stream share it, too: replay them one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip.library import HipLibrary
from hk_backend.devices.hip.memory import Memory
from hk_backend.kernels.gemm_plan import MOST_TILES


@dataclass(slots=True, eq=False)
class Workspace:
    """Workspace of one stream.

    Args:
        partial: the partial sums.
        arrived: a counter for each tile, zero between launches; the last workgroup of a tile resets
            it.
        used: whether a launch has used this workspace.
    """

    partial: torch.Tensor
    arrived: torch.Tensor
    used: bool = False

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Tensors by field of the kernels' argument."""
        return {"partial": self.partial, "arrived": self.arrived}


class Workspaces:
    """Workspaces by GPU and stream.

    Each GPU also has a spare one, for a stream whose first use is in a capture. No lasting memory
    can be allocated there.
    """

    def __init__(self, memory: Memory, library: HipLibrary) -> None:
        self._memory = memory
        self._library = library
        self._lock = threading.Lock()
        self._of: dict[tuple[int, int], Workspace] = {}
        self._spare: dict[int, Workspace] = {}
        self._used: list[Workspace] = []
        """Used workspaces that larger ones have replaced."""

    def reserve(self, index: int, partial_bytes: int) -> None:
        """Makes room on GPU `index` for launches with `partial_bytes` of sums.

        Called when a weight is packed. Waits for the GPU, and zeroes all counters.
        """
        if not partial_bytes:
            return
        stream = self._memory.stream(index)
        with self._lock, self._library.current(index):
            self._zero(index)
            before = self._of.get((index, stream)), self._spare.get(index)
            self._of[index, stream] = self._grown(before[0], index, partial_bytes)
            self._spare[index] = self._grown(before[1], index, partial_bytes)
            self._library.synchronise(stream)  # other streams will use the new workspaces

    def restore(self) -> None:
        """Zeroes all counters of all GPUs, as an engine that slept may have lost them.

        Waits for the GPUs. A graph may hold the address of a workspace that is no longer in use.
        """
        with self._lock:
            held = (*self._of.values(), *self._spare.values(), *self._used)
            for index in {self._memory.index(each.arrived) for each in held}:
                with self._library.current(index):
                    self._zero(index)
                    self._library.synchronise(self._memory.stream(index))

    def _zero(self, index: int) -> None:
        """Zeroes the counters of a GPU, whose launches have ended, on torch's current stream."""
        for (gpu, own), held in self._of.items():
            if gpu == index:
                self._library.synchronise(own)
                held.arrived.zero_()
        spare = [self._spare[index]] if index in self._spare else []
        for held in (*spare, *self._used):
            if self._memory.index(held.arrived) == index:
                held.arrived.zero_()

    def of(self, index: int, stream: int, partial_bytes: int) -> Workspace:
        """The workspace of a stream with at least `partial_bytes`.

        Args:
            stream: torch's current stream on GPU `index`.

        Raises:
            DeviceError: the stream is being captured, and has no workspace.
        """
        found = self._of.get((index, stream))
        if found is None or found.partial.nbytes < partial_bytes:
            found = self._another(index, stream, partial_bytes)
        found.used = True
        return found

    def _another(self, index: int, stream: int, partial_bytes: int) -> Workspace:
        with self._lock, self._library.current(index):  # the stream may be this GPU's null stream
            before = self._of.get((index, stream))
            if self._library.is_capturing(stream):
                another = self._spare.pop(index, None)
                if another is None or another.partial.nbytes < partial_bytes:
                    raise DeviceError(
                        "a launch that leaves partial results has no workspace on a stream whose "
                        "first use is in a graph capture: call it on that stream before"
                    )
                self._keep(before)
            else:
                another = self._grown(before, index, partial_bytes)
            self._of[index, stream] = another
        return another

    def _grown(self, before: Workspace | None, index: int, partial_bytes: int) -> Workspace:
        """A workspace with at least `partial_bytes`, and as large as any other on the GPU."""
        if before is not None and before.partial.nbytes >= partial_bytes:
            return before
        self._keep(before)
        others = [held for (gpu, _), held in self._of.items() if gpu == index]
        others += [self._spare[index]] if index in self._spare else []
        room = max([partial_bytes, *(other.partial.nbytes for other in others)])
        on = self._memory.torch_device(index)
        with torch.inference_mode(False):  # `reserve` will write to it, in any mode
            return Workspace(
                torch.empty(room // 4, dtype=torch.float32, device=on),
                torch.zeros(MOST_TILES, dtype=torch.int32, device=on),
            )

    def _keep(self, replaced: Workspace | None) -> None:
        if replaced is not None and replaced.used:
            self._used.append(replaced)
