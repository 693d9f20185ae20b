"""The attention of one layer, recorded over whole keys and over parts of them.

In an engine, a step runs the same kernel in every layer, over the same rows, on other tensors of
the same layout. So what the layers share is made once per step (dealing.py), and the rest of the
kernels' arguments once per layer. Each step decides which recording to launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from hk_backend.devices.hip.attention_launch import most_tokens
from hk_backend.devices.hip.attention_parts import in_parts, pieces
from hk_backend.devices.hip.call import KernelCall
from hk_backend.devices.hip.dealing import OF_PARTS, OF_WHOLE, ROWS, DealtLayer, StepOnGpu
from hk_backend.devices.hip.library import HipLibrary
from hk_backend.devices.hip.memory import Memory
from hk_backend.devices.hip.operator import Gpus
from hk_backend.devices.hip.recording import Place, Recording
from hk_backend.devices.hip.workspace import Workspaces
from hk_backend.kernels import Family
from hk_backend.kernels.attention_plan import Parts, partial_bytes
from hk_backend.terms.attention_step import AttentionStep

TENSORS = ("query", "key", "value", "out")
"""The tensors of a layer that are handed over with each call."""
OF_LAYER = ("key_scale", "value_scale", "sinks", "alibi_slopes")
"""The tensors of a layer that stay as they were at preparation."""
SHARED = {"out": "partial", "lse": "sums"}
"""Tensors in which the kernels of parts leave their results, by their argument fields."""


@dataclass(frozen=True)
class PreparedAttention:
    """The recordings of `layer` on GPU `index`.

    Args:
        most_tokens: most query tokens of a step.
        whole: over whole keys, by rows of a workgroup's tile.
        shared: over parts of the keys, and their merge; None: the keys are never split.
        kept: the layer's own tensors, which each launch is given.
    """

    memory: Memory
    library: HipLibrary
    workspaces: Workspaces
    index: int
    layer: DealtLayer
    most_tokens: int
    whole: Mapping[int, Recording]
    shared: Recording | None
    kept: tuple[torch.Tensor, ...]

    def launch(self, step: AttentionStep | None, tensors: Sequence[torch.Tensor | None]) -> bool:
        """Launches as `Prepared.launch` does. A captured launch never has parts, as their workspace
        could belong to another graph."""
        assert step is not None
        if step.num_tokens > self.most_tokens:
            return False
        stream, layer = self.memory.stream(self.index), self.layer
        on_gpu = step.derived.get(self.memory) or StepOnGpu.of(step, self.memory)
        choice, values = on_gpu.dealt(layer)
        number = choice.parts.number
        if number > 1 and self.library.is_capturing(stream):
            choice, values = on_gpu.dealt(layer._replace(parts=False))
        elif number > 1 and self.shared is not None:
            rows = number * step.num_tokens * layer.heads
            room = partial_bytes(rows, layer.head_size)
            memory = self.workspaces.of(self.index, stream, room).partial
            sums, partial = pieces(memory, rows, layer.head_size)
            return self.shared.launch(stream, (*tensors, partial, sums, *self.kept), values)
        return self.whole[choice.rows].launch(stream, (*tensors, *self.kept), values)


def can_prepare(call: KernelCall) -> bool:
    """Whether only fields that a step or a layer provides differ between launches of this call."""
    known = {*TENSORS, *OF_LAYER, *ROWS}
    return set(TENSORS) <= set(call.tensors) <= known


def prepare_attention(
    gpus: Gpus,
    index: int,
    call: KernelCall,
    parts: tuple[Family, Family] | None,
    tensors: Sequence[torch.Tensor | None],
    paged: bool,
) -> PreparedAttention:
    """Records the launches of a call on GPU `index`.

    Args:
        parts: kernels for parts of the keys and their merge; None: the keys are never split.
        tensors: query, key, value and out, in the form in which later calls hand them over.
        paged: whether key and value are a cache, whose number of blocks stays the same. Else they
            have a row for each token of a step.
    """
    memory, kernels = gpus.memory, gpus.kernels
    kept = {name: call.tensors[name] for name in OF_LAYER if name in call.tensors}
    given = dict(zip(TENSORS, tensors, strict=True))
    exact = {*kept, *(("key", "value") if paged else ())}
    whole = {}
    for kernel in call.kernels:
        one = replace(call, kernels=(kernel,))
        launches = [(one, places(one))]
        like = {**given, **kept}
        whole[kernel.tile.rows] = Recording(kernels, memory, index, launches, like, exact, OF_WHOLE)
    shared = None
    if parts is not None:
        nothing = torch.empty(0, dtype=torch.float32, device=call.tensors["out"].device)
        first, second = in_parts(call, Parts(1, 0), parts, nothing)
        launches = [(first, places(first, SHARED)), (second, places(second))]
        like = {**given, "partial": nothing, "sums": nothing, **kept}
        shared = Recording(kernels, memory, index, launches, like, exact, OF_PARTS)
    layer = DealtLayer.of(call, gpus.gpu(index).compute_units, parts=shared is not None)
    most = most_tokens(call.kernels, call.sizes["group"])
    own = tuple(kept.values())
    place = memory, gpus.library, gpus.workspaces, index
    return PreparedAttention(*place, layer, most, whole, shared, own)


def places(call: KernelCall, renamed: Mapping[str, str] | None = None) -> dict[str, Place]:
    """Places of a launch's tensors without those of the step, by the struct's fields."""
    names = renamed or {}
    return {field: (names.get(field, field), 0) for field in call.tensors if field not in ROWS}
