"""A layer's attention, prepared whole and in parts: the step decides which is launched."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hk_backend.devices.hip.attention_parts import pieces, workspace_bytes
from hk_backend.devices.hip.library import HipLibrary
from hk_backend.devices.hip.memory import Memory
from hk_backend.devices.hip.plan import Layer, Plan, Prepared
from hk_backend.devices.hip.workspace import Workspaces


@dataclass(frozen=True)
class PreparedParts:
    """The launches of `layer` on GPU `index`.

    `whole`: of query, key, value and out. `parts`: of query, key, value, and the outputs and sums
    of the parts. `merge`: of these, and out.
    """

    memory: Memory
    library: HipLibrary
    workspaces: Workspaces
    index: int
    layer: Layer
    whole: Prepared
    parts: Prepared
    merge: Prepared

    def launch(self, plan: Plan, tensors: tuple[torch.Tensor, ...]) -> bool:
        """As `Prepared.launch`. What is captured has no parts: its workspace could be another
        graph's."""
        stream = self.memory.stream(self.index)
        dealt, layer = plan.in_parts(self.layer), self.layer
        if dealt is None or self.library.is_capturing(stream):
            return self.whole.launch(plan, tensors)
        rows = dealt.parts.number * plan.num_tokens * layer.heads
        room = workspace_bytes(rows, layer.head_size)
        memory = self.workspaces.of(self.index, stream, room).partial
        sums, partial = pieces(memory, rows, layer.head_size)
        *inputs, out = tensors
        return self.parts.launch(dealt, (*inputs, partial, sums)) and self.merge.launch(
            dealt, (partial, sums, out)
        )
