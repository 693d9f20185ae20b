"""Launches prepared once per layer and repeated, and the arguments that a step's launches share.

In an engine, a step runs the same kernel in every layer, over the same rows, on other tensors of
the same layout. So each step checks its rows and takes their addresses once (`Plan`). Each layer
packs the rest of the kernel's argument once (`Prepared`). The launcher patches the layer's
addresses into it (csrc/hip/prepared.hpp) and chooses the kernel by the step's size. It refuses to
launch anything that it was not prepared for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

import torch

from hk_backend import _hip
from hk_backend.devices.hip.attention import most_tokens
from hk_backend.devices.hip.call import KernelCall
from hk_backend.devices.hip.memory import Memory
from hk_backend.kernels import attention_plan
from hk_backend.kernels.attention_plan import Choice, Parts
from hk_backend.kernels.masks import GROUPED
from hk_backend.terms.checks import bad

ROWS = ("query_start_loc", "key_start_loc", "seq_lens", "block_table")
"""The tensors of a step, by the names of the kernels' argument fields."""
OF_PARTS = ("parts", "part_keys", "out_part", "lse_part", "lse_head")
"""Argument fields about the parts of the keys and the layout of their partial results."""
VALUES = (*ROWS, "block_table_row", "num_requests", "num_tokens", *OF_PARTS)
"""Argument fields that a launch takes from the step."""
TENSORS = ("query", "key", "value", "out")
"""The tensors of a layer that are handed over with each call."""
OF_LAYER = ("key_scale", "value_scale", "sinks", "alibi_slopes")
"""The tensors of a layer that stay as they were at preparation."""
ALIGNMENT = 16
"""Alignment of the layer's tensors in bytes, as the kernels read and write 16 at once."""

reads_tensors = _hip.read_tensors_of(torch.Tensor)
"""Whether the launcher can read tensors: torch 2.10 and newer have DLPack's exchange table."""


class Layer(NamedTuple):
    """Facts of a layer and its GPU that decide how to deal a step: see `attention_plan.choices`."""

    heads: int
    kv_heads: int
    head_size: int
    grouped: bool
    window: int
    sizes: tuple[int, ...]
    parts: bool
    compute_units: int

    @classmethod
    def of(cls, call: KernelCall, compute_units: int, parts: bool = False) -> Layer:
        facts, window = call.kernels[0].facts, int(call.numbers["window"])
        heads = call.sizes["num_heads"], call.sizes["num_kv_heads"], int(facts["head_size"])
        sizes = tuple(kernel.tile.rows for kernel in call.kernels)
        return cls(*heads, facts["mask"] in GROUPED, window, sizes, parts, compute_units)

    def choose(self, tokens: int, requests: int, longest: int | None) -> Choice:
        """The best choice for a step; see `attention_plan.Step`. `longest` is None if unknown."""
        of_layer = self.heads, self.kv_heads, self.head_size, self.grouped, self.window
        step = attention_plan.Step(tokens, requests, longest or 0, *of_layer)
        return attention_plan.choose(step, self.compute_units, self.sizes, self.parts)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The rows of one step on GPU `index`.

    `tensors` keeps the tensors alive whose addresses `native` has. `longest` is the keys of the
    longest request, if the host knows.
    """

    index: int
    num_tokens: int
    tensors: Mapping[str, torch.Tensor]
    native: _hip.Step
    longest: int | None = None
    _choices: dict[Layer, Choice] = field(default_factory=dict)
    _parts: dict[Layer, PlanInParts | None] = field(default_factory=dict)

    def at(self, addresses: Mapping[str, int]) -> _hip.Step:
        """The same step with its tensors at other addresses."""
        return _step(self.index, self.num_tokens, self.tensors, addresses)

    def choice(self, layer: Layer) -> Choice:
        """How the step is dealt for such a layer."""
        found = self._choices.get(layer)
        if found is None:
            requests = max(len(self.tensors["query_start_loc"]) - 1, 1)
            found = layer.choose(self.num_tokens, requests, self.longest)
            self._choices[layer] = found
        return found

    def in_parts(self, layer: Layer) -> PlanInParts | None:
        """The plan for a layer whose keys are worth splitting into parts; None if they are not."""
        if layer not in self._parts:
            self._parts[layer] = self._share(layer)
        return self._parts[layer]

    def _share(self, layer: Layer) -> PlanInParts | None:
        if self.longest is None or self.num_tokens < 1:
            return None
        parts = self.choice(layer).parts
        if parts.number == 1:
            return None
        addresses = {name: tensor.data_ptr() for name, tensor in self.tensors.items()}
        values = numbers_of(parts, self.num_tokens, layer.heads, layer.head_size)
        native = _step(self.index, self.num_tokens, self.tensors, addresses, values)
        return PlanInParts(self, parts, values, native)


@dataclass(frozen=True, slots=True, eq=False)
class PlanInParts:
    """The same rows as `whole`, with their keys in `parts`."""

    whole: Plan
    parts: Parts
    values: Mapping[str, int]
    native: _hip.Step

    @property
    def index(self) -> int:
        return self.whole.index

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        return self.whole.tensors

    def at(self, addresses: Mapping[str, int]) -> _hip.Step:
        """The same step with its tensors at other addresses."""
        return _step(self.index, self.whole.num_tokens, self.tensors, addresses, self.values)


def numbers_of(parts: Parts, tokens: int, heads: int, head_size: int) -> dict[str, int]:
    """Values of the argument fields about parts, by field."""
    return {
        "parts": parts.number,
        "part_keys": parts.keys,
        "out_part": tokens * heads * head_size,
        "lse_part": 2 * heads * tokens,
        "lse_head": tokens,
    }


def plan(
    memory: Memory,
    query_start_loc: torch.Tensor,
    num_tokens: int,
    seq_lens: torch.Tensor | None,
    block_table: torch.Tensor | None,
    longest: int | None = None,
) -> Plan:
    """Makes the plan of a step, whose fresh keys are packed like its queries.

    Args:
        query_start_loc: int32 `[requests + 1]`.
        num_tokens: end of the last request.
        seq_lens: int32 `[requests]`, where keys are read from a cache.
        block_table: int32 `[requests, max_blocks]`, where keys are read from a cache.
        longest: the largest of `seq_lens`, if the host knows it.

    Raises:
        ValueError: names the argument, its value and what would be valid.
    """
    if query_start_loc.dim() != 1 or not query_start_loc.shape[0]:
        bad("query_start_loc", tuple(query_start_loc.shape), "the shape [requests + 1]")
    requests = query_start_loc.shape[0] - 1
    tensors = {"query_start_loc": query_start_loc.contiguous()}
    tensors["key_start_loc"] = tensors["query_start_loc"]
    if seq_lens is not None:
        if seq_lens.shape != (requests,):
            bad("seq_lens", tuple(seq_lens.shape), f"the shape [{requests}]")
        tensors["seq_lens"] = seq_lens.contiguous()
    if block_table is not None:
        if block_table.dim() != 2 or block_table.shape[0] != requests:
            bad("block_table", tuple(block_table.shape), f"the shape [{requests}, max_blocks]")
        if block_table.shape[1] > 1 and block_table.stride(1) != 1:
            block_table = block_table.contiguous()
        tensors["block_table"] = block_table
    for name, tensor in tensors.items():
        if tensor.dtype != torch.int32:
            bad(name, tensor.dtype, "int32")
        if tensor.device != query_start_loc.device or tensor.device.type != memory.tensors_on:
            bad(name, f"a tensor on {tensor.device}", f"one on {memory.tensors_on}, as all others")
    index = memory.index(query_start_loc)
    addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    native = _step(index, num_tokens, tensors, addresses)
    return Plan(index, num_tokens, tensors, native, longest)


def _step(
    index: int,
    num_tokens: int,
    tensors: Mapping[str, torch.Tensor],
    addresses: Mapping[str, int],
    more: Mapping[str, int] = MappingProxyType({}),
) -> _hip.Step:
    block_table = tensors.get("block_table")
    numbers = {
        "block_table_row": 0 if block_table is None else block_table.stride(0),
        "num_requests": tensors["query_start_loc"].shape[0] - 1,
        "num_tokens": num_tokens,
        **addresses,
        **more,
    }
    return _hip.Step(index, [numbers.get(name, 0) for name in VALUES], num_tokens)


class Prepared:
    """The launch of `call`, repeated for other tensors of the same layout and other rows.

    Args:
        kernels: the loaded kernels of `call`; where there are several, a plan chooses one.
        tensors: tensors that each launch will be given, by the struct's fields. They are those of
            `call`, perhaps in another shape.
        paged: whether keys and values are a cache, whose number of blocks stays the same. Else they
            have a row for each token of a step.
        compute_units: number of compute units of the GPU.
    """

    def __init__(
        self,
        memory: Memory,
        kernels: list[_hip.Kernel],
        call: KernelCall,
        tensors: Mapping[str, torch.Tensor],
        paged: bool,
        compute_units: int,
    ) -> None:
        self._memory = memory
        self._call = call
        arguments = call.kernels[0].arguments
        fields = {field.name: field for field in arguments.fields}
        kept = {name: call.tensors[name] for name in OF_LAYER if name in call.tensors}
        self._names, self._kept = (*tensors, *kept), tuple(kept.values())
        exact = {*kept, *(("key", "value") if paged else ())}
        taken = {*call.tensors, *call.sizes, *(["block_table_row"] if paged else [])}
        taken |= set(OF_PARTS) if "parts" in call.sizes else set()
        taken &= set(fields)
        self._most_tokens = most_tokens(call.kernels, call.sizes["group"])
        self._layer = Layer.of(call, compute_units) if len(kernels) > 1 else None
        self._natives = {
            kernel.tile.rows: _hip.Prepared(
                [loaded],
                arguments.pack(call.values({})),
                [(fields[n].offset, fields[n].size) if n in taken else (0, 0) for n in VALUES],
                [
                    (tensor, fields[name].offset, name in exact)
                    for name, tensor in {**tensors, **kept}.items()
                ],
                ALIGNMENT,
            )
            for kernel, loaded in zip(call.kernels, kernels, strict=True)
        }
        self._only = next(iter(self._natives.values()))

    def launch(self, plan: Plan | PlanInParts, tensors: tuple[torch.Tensor, ...]) -> bool:
        """Enqueues the launch for a step and a layer's tensors.

        Returns:
            False, and nothing has been done, if the tensors differ in layout from the prepared
            ones or there are too many rows.

        Raises:
            DeviceError, HipError: the launch failed.
        """
        tensors += self._kept
        native = self._only
        if isinstance(plan, Plan):
            if plan.num_tokens > self._most_tokens:
                return False
            if self._layer is not None:
                native = self._natives[plan.choice(self._layer).rows]
        if self._memory.is_direct:
            return native.launch(plan.native, self._memory.stream(plan.index), tensors)
        return self._launch_mapped(native, plan, tensors)

    def _launch_mapped(
        self, native: _hip.Prepared, plan: Plan | PlanInParts, tensors: tuple[torch.Tensor, ...]
    ) -> bool:
        given = dict(zip(self._names, tensors, strict=True))
        rows = {name: plan.tensors[name] for name in ROWS if name in self._call.tensors}
        with self._memory.addresses(replace(self._call, tensors={**given, **rows})) as addresses:
            found = [addresses.get(name, 0) for name in self._names]
            stream = self._memory.stream(plan.index)
            return native.launch(plan.at(addresses), stream, tensors, found)


def can_prepare(call: KernelCall) -> bool:
    """Whether only fields that a plan or a layer provides differ between launches of this call."""
    known = {*TENSORS, *OF_LAYER, *ROWS}
    return reads_tensors and set(TENSORS) <= set(call.tensors) <= known
