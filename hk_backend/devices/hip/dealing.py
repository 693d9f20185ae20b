"""Deals the attention of a step to workgroups, by the planner's choice for each layer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from hk_backend.devices.hip.attention_parts import numbers_of
from hk_backend.devices.hip.call import KernelCall
from hk_backend.devices.hip.memory import Memory
from hk_backend.devices.hip.recording import StepValues
from hk_backend.kernels import Family, attention_plan
from hk_backend.kernels.attention_plan import Choice
from hk_backend.kernels.masks import ALL_KEYS, GROUPED
from hk_backend.terms.attention_step import AttentionStep
from hk_backend.terms.checks import bad
from hk_backend.terms.requests import AttentionRequest

ROWS = ("query_start_loc", "key_start_loc", "seq_lens", "block_table")
"""The tensors of a step, by the names of the kernels' argument fields."""
OF_WHOLE = (*ROWS, "block_table_row", "num_requests", "num_tokens")
"""Argument fields that a launch over whole keys takes from the step."""
OF_PARTS = (*OF_WHOLE, "parts", "part_keys", "out_part", "lse_part", "lse_head")
"""Argument fields that launches over parts of the keys take from the step."""


class DealtLayer(NamedTuple):
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
    def of(cls, call: KernelCall, compute_units: int, parts: bool = False) -> DealtLayer:
        facts, window = call.kernels[0].facts, int(call.numbers["window"])
        heads = call.sizes["num_heads"], call.sizes["num_kv_heads"], int(facts["head_size"])
        sizes = tuple(kernel.tile.rows for kernel in call.kernels)
        return cls(*heads, facts["mask"] in GROUPED, window, sizes, parts, compute_units)

    @classmethod
    def of_request(
        cls, request: AttentionRequest, kernels: Family, compute_units: int
    ) -> DealtLayer:
        """The layer of a request that `kernels` serve; its keys are never split."""
        facts, window = kernels[0].facts, request.sliding_window or ALL_KEYS
        heads = request.num_heads, request.num_kv_heads, int(facts["head_size"])
        sizes = tuple(kernel.tile.rows for kernel in kernels)
        return cls(*heads, facts["mask"] in GROUPED, window, sizes, False, compute_units)

    def choose(self, tokens: int, requests: int, longest: int | None) -> Choice:
        """The best choice for a launch. Keys of unknown length (None) are not split."""
        of_layer = self.heads, self.kv_heads, self.head_size, self.grouped, self.window
        sizes = attention_plan.LaunchSizes(tokens, max(requests, 1), longest or 0, *of_layer)
        parts = self.parts and longest is not None and tokens > 0
        return attention_plan.choose(sizes, self.compute_units, self.sizes, parts)


@dataclass(frozen=True, slots=True, eq=False)
class StepOnGpu:
    """Values and choices that the launches of a step share on one GPU (`AttentionStep.derived`).

    It keeps no reference to the step, which refers to it: in a cycle the step's tensors would stay
    alive until the garbage collection.

    Args:
        longest: `AttentionStep.longest`.
    """

    whole: StepValues
    longest: int | None
    _dealt: dict[DealtLayer, tuple[Choice, StepValues]] = field(default_factory=dict)

    @classmethod
    def of(cls, step: AttentionStep, memory: Memory) -> StepOnGpu:
        """Raises `ValueError` if the step's tensors are not on a GPU of `memory`."""
        starts = step.query_start_loc
        if starts.device.type != memory.tensors_on:
            bad("query_start_loc", f"a tensor on {starts.device}", f"one on {memory.tensors_on}")
        table = step.block_table
        numbers = {
            "block_table_row": 0 if table is None else table.stride(0),
            "num_requests": step.num_requests,
            "num_tokens": step.num_tokens,
        }
        tensors = {**step.tensors(), "key_start_loc": starts}
        index = memory.index(starts)
        values = StepValues(OF_WHOLE, index, tensors, numbers, step.num_tokens)
        found = cls(values, step.longest)
        step.derived[memory] = found
        return found

    def dealt(self, layer: DealtLayer) -> tuple[Choice, StepValues]:
        """The choice for such a layer, and the values that its launches take."""
        found = self._dealt.get(layer)
        if found is None:
            values = self.whole
            tokens, requests = (values.numbers[name] for name in ("num_tokens", "num_requests"))
            choice = layer.choose(tokens, requests, self.longest)
            if choice.parts.number > 1:
                sizes = tokens, layer.heads, layer.head_size
                numbers = {**values.numbers, **numbers_of(choice.parts, *sizes)}
                values = StepValues(OF_PARTS, values.index, values.tensors, numbers, values.rows)
            found = self._dealt[layer] = choice, values
        return found
