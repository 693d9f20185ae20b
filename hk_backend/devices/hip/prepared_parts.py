"""The attention of a layer, prepared both whole and in parts; each step decides which to launch."""

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

    Args:
        whole: launch over query, key, value and out.
        parts: launch over query, key, value, and the parts' outputs and sums.
        merge: launch over the parts' outputs and sums, and out.
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
        """Launches as `Prepared.launch` does. A captured launch never has parts, as their workspace
        could belong to another graph."""
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
