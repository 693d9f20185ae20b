"""The decode attention of one layer, recorded for each size of a workgroup's tile.

A launch depends on no length, only on the number of requests and on the most query tokens of one.
So a captured launch serves every later step of as many requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from hk_backend.devices.hip.attention_launch import most_tokens
from hk_backend.devices.hip.call import KernelCall
from hk_backend.devices.hip.dealing import ROWS
from hk_backend.devices.hip.memory import Memory
from hk_backend.devices.hip.operator import Gpus
from hk_backend.devices.hip.prepared_attention import OF_LAYER, TENSORS, places
from hk_backend.devices.hip.recording import Recording, StepValues
from hk_backend.devices.hip.workspace import Workspaces
from hk_backend.kernels import KernelEntry, decode_plan
from hk_backend.terms.attention_step import AttentionStep

WORKSPACE = ("partial", "arrived")
"""Argument fields with the workspace, which belongs to the stream and not to the layer."""
OF_STEP = (*ROWS, *WORKSPACE, "block_table_row", "num_requests", "num_tokens", "shares")
"""Argument fields that a launch takes from the step and its stream."""


@dataclass(frozen=True)
class PreparedDecode:
    """The recordings of a layer on GPU `index`.

    Args:
        tiles: kernels and their recordings, the smallest tile first.
        group: query heads of a KV head.
        most_tokens: most query tokens of a step.
        kept: the layer's own tensors, which each launch is given.
    """

    memory: Memory
    workspaces: Workspaces
    index: int
    compute_units: int
    tiles: Sequence[tuple[KernelEntry, Recording]]
    group: int
    kv_heads: int
    most_tokens: int
    kept: tuple[torch.Tensor, ...]

    def launch(self, step: AttentionStep | None, tensors: Sequence[torch.Tensor | None]) -> bool:
        """Launches the smallest tile that holds the rows of a request; False if there is none."""
        assert step is not None
        stream = self.memory.stream(self.index)
        key = self.memory, stream, self.tiles[0][0].name, self.group, self.kv_heads
        known = step.derived.get(key)
        if known is None:
            known = self._planned(step, stream)
            if known is None:
                return False
            step.derived[key] = known
        tile, values = known
        return self.tiles[tile][1].launch(stream, (*tensors, *self.kept), values)

    def _planned(self, step: AttentionStep, stream: int) -> tuple[int, StepValues] | None:
        """Number of a step's tile, and values that all layers which are alike have in common."""
        assert step.max_query_len is not None
        assert step.block_table is not None
        rows = step.max_query_len * self.group
        fitting = (number for number, (kernel, _) in enumerate(self.tiles) if _rows(kernel) >= rows)
        tile = next(fitting, None)
        if tile is None or step.num_tokens > self.most_tokens:
            return None
        kernel = self.tiles[tile][0]
        shares = decode_plan.shares(kernel, self.kv_heads, self.compute_units)
        room = decode_plan.partial_bytes(kernel, shares, self.kv_heads)
        workspace = self.workspaces.of(self.index, stream, room)
        tensors = {
            **step.tensors(),
            "partial": workspace.partial[: room // 4],
            "arrived": workspace.arrived[: shares * self.kv_heads],
        }
        numbers = {
            "block_table_row": step.block_table.stride(0),
            "num_requests": step.num_requests,
            "num_tokens": step.num_tokens,
            "shares": shares,
        }
        return tile, StepValues(OF_STEP, self.index, tensors, numbers, step.num_tokens)


def _rows(kernel: KernelEntry) -> int:
    return kernel.tile.rows


def prepare_decode(
    gpus: Gpus, index: int, call: KernelCall, tensors: Sequence[torch.Tensor | None]
) -> PreparedDecode:
    """Records the launches of a call on GPU `index`.

    Args:
        tensors: query, key and value of the cache, and out, in the form in which later calls hand
            them over.
    """
    kept = {name: call.tensors[name] for name in OF_LAYER if name in call.tensors}
    given = {**dict(zip(TENSORS, tensors, strict=True)), **kept}
    exact = {*kept, "key", "value"}
    nothing = torch.empty(0, dtype=torch.float32, device=call.tensors["out"].device)
    tiles = []
    for kernel in sorted(call.kernels, key=lambda each: each.tile.rows):
        one = replace(call, kernels=(kernel,))
        of_stream = {**one.tensors, **dict.fromkeys(WORKSPACE, nothing)}
        unknown = {**one.numbers, "shares": 1}
        launches = [(replace(one, tensors=of_stream, numbers=unknown), places(one))]
        recording = Recording(gpus.kernels, gpus.memory, index, launches, given, exact, OF_STEP)
        tiles.append((kernel, recording))
    sizes = call.sizes
    return PreparedDecode(
        gpus.memory,
        gpus.workspaces,
        index,
        gpus.gpu(index).compute_units,
        tiles,
        sizes["group"],
        sizes["num_kv_heads"],
        most_tokens(call.kernels, sizes["group"]),
        tuple(kept.values()),
    )
