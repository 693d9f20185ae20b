"""Attention of few rows over many keys: workgroups share the keys, and a merge kernel follows.

The merge kernel (csrc/kernels/attention_merge.hip) joins the partial results of the parts. They lie
in memory that the stream's launches share (workspace.py): first the sums of all rows and parts,
then the outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from hk_backend.devices.hip.attention_family import PREFILL, STORED
from hk_backend.devices.hip.attention_launch import prepare
from hk_backend.devices.hip.attention_problem import problem_of
from hk_backend.devices.hip.call import KernelCall
from hk_backend.devices.hip.operator import HipOperator, Machine, Problem, Way
from hk_backend.kernels import Catalogue, Family, KernelEntry, NoKernel
from hk_backend.kernels.attention_plan import TILE_KEYS, Parts, partial_bytes
from hk_backend.kernels.masks import ALIBI, ALL_KEYS, CAPPED, PART, WINDOW_PART
from hk_backend.kernels.row_sources import PAGED
from hk_backend.terms.attention_arguments import AttentionArguments

MERGE = "attention_merge"
"""Name in the catalogue of the kernels that join partial results."""
SELF_CHECK = Parts(3, 4 * TILE_KEYS)
"""Parts of the self-check: one request's keys end in the second part, another's in the last."""
FROM_CALL = ("out", "lse", "key_scale", "value_scale", "sinks", "query_start_loc")
"""Tensors of a call that the merge kernel takes."""


def kernels_of(call: KernelCall, kernels: Catalogue) -> tuple[Family, Family] | None:
    """The kernels for a call's parts and for their merge; None if either is missing."""
    facts = call.kernels[0].facts
    if facts["mask"] in (CAPPED, ALIBI):
        return None
    mask = PART if call.numbers["window"] == ALL_KEYS else WINDOW_PART
    parts = kernels.alternatives(PREFILL, **{**facts, "mask": mask})
    of_merge = {name: facts[name] for name in ("dtype", "head_size")}
    merge = kernels.alternatives(MERGE, **of_merge)
    if isinstance(parts, NoKernel) or isinstance(merge, NoKernel):
        return None
    return parts, merge


def in_parts(
    call: KernelCall, parts: Parts, kernels: tuple[Family, Family], memory: torch.Tensor
) -> tuple[KernelCall, KernelCall]:
    """The two launches of a call: the parts, and the merge.

    Args:
        kernels: `kernels_of` the call, or some of them.
        memory: float32 tensor of at least `partial_bytes`.
    """
    of_parts, of_merge = kernels
    out = call.tensors["out"]
    tokens, heads, head_size = out.shape
    sums, partial = pieces(memory, parts.number * tokens * heads, head_size)
    own = numbers_of(parts, tokens, heads, head_size)
    strides = {"out_token": heads * head_size, "out_head": head_size, "lse_token": 1}
    first = replace(
        call,
        kernels=of_parts,
        tensors={**call.tensors, "out": partial, "lse": sums},
        numbers={**call.numbers, **strides, **own},
    )
    names = {field.name for field in of_merge[0].arguments.fields}
    second = replace(
        call,
        kernels=of_merge,
        tensors={
            "partial": partial,
            "sums": sums,
            **{name: call.tensors[name] for name in FROM_CALL if name in call.tensors},
        },
        numbers={
            name: n for name, n in {**call.numbers, "parts": parts.number}.items() if name in names
        },
    )
    return first, second


def numbers_of(parts: Parts, tokens: int, heads: int, head_size: int) -> dict[str, int]:
    """Values of the argument fields about parts, by field."""
    return {
        "parts": parts.number,
        "part_keys": parts.keys,
        "out_part": tokens * heads * head_size,
        "lse_part": 2 * heads * tokens,
        "lse_head": tokens,
    }


def pieces(memory: torch.Tensor, rows: int, head_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Partial results of `rows` rows, over all parts: the sums, and the outputs in 4-byte words."""
    return memory[: 2 * rows], memory[2 * rows : (2 + head_size // 2) * rows]


class AttentionParts(HipOperator):
    """Kernels for parts of the keys, and those that merge, which are checked with each other."""

    def prepare(self, arguments: AttentionArguments, kernels: Catalogue) -> KernelCall:
        return prepare(arguments, kernels)

    def self_check_problem(self, kernel: KernelEntry) -> Problem:
        dtypes, facts = {name: dtype for dtype, name in STORED.items()}, kernel.facts
        dtype = dtypes[str(facts["dtype"])]
        stored = dtypes[str(facts.get("stored", facts["dtype"]))]
        keys = str(facts.get("keys", PAGED))
        size = int(facts["head_size"])
        mask = str(facts.get("mask", PART))
        return problem_of(dtype, stored, (size, size), keys, mask)

    def ways(self, kernel: KernelEntry, kernels: Catalogue) -> Sequence[Way]:
        def way(call: KernelCall, machine: Machine) -> Sequence[KernelCall]:
            found = kernels_of(call, kernels)
            assert found is not None
            parts, merge = found
            if kernel.operator == MERGE:
                merge = (kernel,)
            else:
                parts = (kernel,)
            tokens, heads, head_size = call.tensors["out"].shape
            room = partial_bytes(SELF_CHECK.number * tokens * heads, head_size)
            memory = machine.workspace(room)["partial"]
            return in_parts(call, SELF_CHECK, (parts, merge), memory)

        return (way,)


PARTS = AttentionParts()
