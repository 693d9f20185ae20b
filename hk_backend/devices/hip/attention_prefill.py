"""`attention_prefill` on a GPU: whole keys in one launch, or parts of the keys and a merge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from hk_backend.devices.hip import attention_family, attention_launch
from hk_backend.devices.hip.attention_family import STORED
from hk_backend.devices.hip.attention_parts import PARTS, in_parts, kernels_of
from hk_backend.devices.hip.attention_problem import problem_of
from hk_backend.devices.hip.call import KernelCall
from hk_backend.devices.hip.dealing import DealtLayer
from hk_backend.devices.hip.operator import Gpus, HipOperator, Problem, Usable
from hk_backend.devices.hip.prepared_attention import (
    PreparedAttention,
    can_prepare,
    prepare_attention,
)
from hk_backend.kernels import Catalogue, Family, KernelEntry
from hk_backend.kernels.attention_plan import partial_bytes
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.requests import AttentionRequest
from hk_backend.terms.verdict import Verdict

PADDING = 8, 16
"""Channels of keys, and of values, that a padded kernel leaves unused in its self-check."""


class AttentionPrefill(HipOperator):
    """Kernels over whole keys. Each step chooses how its rows and keys are dealt (dealing.py)."""

    def verdict(self, request: AttentionRequest, kernels: Catalogue, usable: Usable) -> Verdict:
        found = attention_family.find(request, kernels)
        return found if isinstance(found, Verdict) else usable(self, found)

    def prepare(self, arguments: AttentionArguments, kernels: Catalogue) -> KernelCall:
        return attention_launch.prepare(arguments, kernels)

    def run(self, arguments: AttentionArguments, gpus: Gpus) -> None:
        call = gpus.ready(self, arguments)
        if call is not None:
            index = gpus.index_of(call)
            for each in _dealt(call, arguments.max_seq_len, gpus, index):
                gpus.launch(each, index)

    def record(
        self, arguments: AttentionArguments, tensors: Sequence[torch.Tensor | None], gpus: Gpus
    ) -> PreparedAttention | None:
        call = self.prepare(arguments, gpus.catalogue)
        if not can_prepare(call) or arguments.key_start_loc is not None:
            return None
        index = gpus.memory.index(arguments.query)
        call = gpus.with_usable(self, call, index)
        paged = arguments.paged_kv is not None
        parts = _usable_parts(call, gpus, index) if paged else None
        return prepare_attention(gpus, index, call, parts, tensors, paged)

    def microseconds(
        self, request: AttentionRequest, rows: int, kernels: Catalogue, compute_units: int
    ) -> float:
        found = attention_family.find(request, kernels)
        if isinstance(found, Verdict):
            raise ValueError(found.why)
        layer = DealtLayer.of_request(request, found, compute_units)
        return layer.choose(rows, 1, rows).microseconds

    def self_check_problem(self, kernel: KernelEntry) -> Problem:
        dtypes, facts = {name: dtype for dtype, name in STORED.items()}, kernel.facts
        dtype, stored = (dtypes[str(facts[fact])] for fact in ("dtype", "stored"))
        keys, mask = str(facts["keys"]), str(facts["mask"])
        of_keys, of_values = PADDING if facts["padded"] else (0, 0)
        most = int(facts["head_size"])
        return problem_of(dtype, stored, (most - of_keys, most - of_values), keys, mask)


OPERATOR = AttentionPrefill()


def _dealt(call: KernelCall, longest: int | None, gpus: Gpus, index: int) -> Sequence[KernelCall]:
    """The planned launches of a call. A capture has no parts (prepared_attention.py)."""
    stream, units = gpus.memory.stream(index), gpus.gpu(index).compute_units
    shares = longest is not None and not gpus.library.is_capturing(stream)
    step = call.sizes["num_tokens"], call.sizes["num_requests"], longest
    choice = DealtLayer.of(call, units, parts=shares).choose(*step)
    kernels = _usable_parts(call, gpus, index) if choice.parts.number > 1 else None
    if kernels is None:
        rows = DealtLayer.of(call, units).choose(*step).rows
        chosen = tuple(each for each in call.kernels if each.tile.rows == rows)
        return (replace(call, kernels=chosen),)
    tokens, heads, head_size = call.tensors["out"].shape
    room = partial_bytes(choice.parts.number * tokens * heads, head_size)
    memory = gpus.workspaces.of(index, stream, room).partial
    return in_parts(call, choice.parts, kernels, memory)


def _usable_parts(call: KernelCall, gpus: Gpus, index: int) -> tuple[Family, Family] | None:
    """Usable kernels for parts and for the merge; None if either has none."""
    there = kernels_of(call, gpus.catalogue)
    if there is None:
        return None
    parts, merge = (gpus.usable(PARTS, family, index) for family in there)
    if isinstance(parts, Verdict) or isinstance(merge, Verdict):
        return None
    return parts, merge
