"""Memory that the launches of a stream share: the sums that splits of a tile leave for each other.

It comes from torch's allocator when a weight is packed, as large as the kernels of the layers so
far may need, and serves all of them: launches of one stream do not overlap. A captured graph holds
its address, so what a launch has got is never freed. Graphs that were captured on one stream share
it, too: replay them one after the other.
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
    """`partial`: the sums. `arrived`: a counter for each tile, zero between launches, which the
    last workgroup of a tile sets back. `used`: whether a launch has got it."""

    partial: torch.Tensor
    arrived: torch.Tensor
    used: bool = False

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """By field of the kernels' argument."""
        return {"partial": self.partial, "arrived": self.arrived}


class Workspaces:
    """By GPU and stream; and one to spare on each GPU, for a stream that begins with a capture, in
    which nothing can be allocated that stays."""

    def __init__(self, memory: Memory, library: HipLibrary) -> None:
        self._memory = memory
        self._library = library
        self._lock = threading.Lock()
        self._of: dict[tuple[int, int], Workspace] = {}
        self._spare: dict[int, Workspace] = {}
        self._used: list[Workspace] = []
        """That larger ones have replaced."""

    def reserve(self, index: int, partial_bytes: int) -> None:
        """Make room on GPU `index` for launches that need so much, now that a weight is packed.

        Waits for the GPU. Counters are set to zero again: an engine that slept may have lost them.
        """
        if not partial_bytes:
            return
        stream = self._memory.stream(index)
        with self._lock, self._library.current(index):
            for (gpu, own), held in self._of.items():
                if gpu == index:
                    self._library.synchronise(own)
                    held.arrived.zero_()
            before = self._of.get((index, stream)), self._spare.get(index)
            self._of[index, stream] = self._grown(before[0], index, partial_bytes)
            self._spare[index] = self._grown(before[1], index, partial_bytes)
            self._library.synchronise(stream)  # other streams will use them

    def of(self, index: int, stream: int, partial_bytes: int) -> Workspace:
        """That of a stream, torch's current one on GPU `index`, with at least so much room.

        Raises:
            DeviceError: the stream captures, and there is none for it.
        """
        found = self._of.get((index, stream))
        if found is None or found.partial.nbytes < partial_bytes:
            found = self._another(index, stream, partial_bytes)
        found.used = True
        return found

    def _another(self, index: int, stream: int, partial_bytes: int) -> Workspace:
        with self._lock, self._library.current(index):  # whose null stream it may be
            before = self._of.get((index, stream))
            if self._library.is_capturing(stream):
                another = self._spare.pop(index, None)
                if another is None or another.partial.nbytes < partial_bytes:
                    raise DeviceError(
                        "a linear layer that splits its depth has no workspace on a stream whose "
                        "first use is in a graph capture: call it on that stream before"
                    )
                self._keep(before)
            else:
                another = self._grown(before, index, partial_bytes)
            self._of[index, stream] = another
        return another

    def _grown(self, before: Workspace | None, index: int, partial_bytes: int) -> Workspace:
        """One with at least so much room, and as much as any other on the GPU."""
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
