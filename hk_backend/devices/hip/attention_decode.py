"""`attention_decode` on a GPU: one launch, whose grid depends on no length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import torch

from hk_backend.devices.hip import attention_family, attention_launch
from hk_backend.devices.hip.attention_family import STORED
from hk_backend.devices.hip.attention_problem import DECODE_LENGTHS, problem_of
from hk_backend.devices.hip.call import KernelCall, bad
from hk_backend.devices.hip.operator import Gpus, HipOperator, Machine, Problem, Usable, Way
from hk_backend.devices.hip.prepared_attention import can_prepare
from hk_backend.devices.hip.prepared_decode import PreparedDecode, prepare_decode
from hk_backend.kernels import Catalogue, Family, KernelEntry, decode_plan
from hk_backend.kernels.masks import ALL_KEYS
from hk_backend.terms.attention_arguments import AttentionArguments, DecodeArguments
from hk_backend.terms.requests import DecodeRequest
from hk_backend.terms.verdict import Verdict, refused


class AttentionDecode(HipOperator):
    """Kernels for a few query tokens of each request."""

    def verdict(self, request: DecodeRequest, kernels: Catalogue, usable: Usable) -> Verdict:
        found = _family_of(request, kernels)
        return found if isinstance(found, Verdict) else usable(self, found)

    def prepare(self, arguments: DecodeArguments, kernels: Catalogue) -> KernelCall:
        call = attention_launch.prepare(arguments, kernels)
        group = call.sizes["group"]
        fitting = _fitting(call.kernels, arguments.max_query_len * group)
        if not fitting:
            most = call.kernels[0].tile.rows // group
            valid = f"at most {most} with {group} query heads of a KV head"
            bad("max_query_len", arguments.max_query_len, valid)
        return replace(call, kernels=fitting)

    def completed(self, call: KernelCall, machine: Machine) -> KernelCall:
        """The launch of the smallest tile, with as many workgroups as the GPU holds."""
        kernel, kv_heads = call.kernels[-1], call.sizes["num_kv_heads"]
        shares = decode_plan.shares(kernel, kv_heads, machine.compute_units)
        room = decode_plan.partial_bytes(kernel, shares, kv_heads)
        workspace = machine.workspace(room)
        own = {
            "partial": workspace["partial"][: room // 4],
            "arrived": workspace["arrived"][: shares * kv_heads],
        }
        return replace(
            call,
            kernels=(kernel,),
            tensors={**call.tensors, **own},
            numbers={**call.numbers, "shares": shares},
        )

    def record(
        self, arguments: DecodeArguments, tensors: Sequence[torch.Tensor | None], gpus: Gpus
    ) -> PreparedDecode | None:
        call = attention_launch.prepare(arguments, gpus.catalogue)
        if not can_prepare(call):
            return None
        index = gpus.memory.index(arguments.query)
        return prepare_decode(gpus, index, gpus.with_usable(self, call, index), tensors)

    def microseconds(
        self, request: DecodeRequest, rows: int, kernels: Catalogue, compute_units: int
    ) -> float:
        found, tokens = _family_of(request, kernels), request.max_query_len
        if isinstance(found, Verdict):
            raise ValueError(found.why)
        if request.keys < tokens:
            bad("keys", request.keys, f"{tokens} or more, the keys of each request")
        kernel, window = found[-1], request.sliding_window or ALL_KEYS
        tiles = decode_plan.key_tiles(kernel, request.keys, tokens, window)
        return decode_plan.microseconds(kernel, [tiles] * rows, request.num_kv_heads, compute_units)

    def self_check_problem(self, kernel: KernelEntry) -> Problem:
        dtypes, facts = {name: dtype for dtype, name in STORED.items()}, kernel.facts
        dtype, stored = (dtypes[str(facts[fact])] for fact in ("dtype", "stored"))
        keys, mask, size = str(facts["keys"]), str(facts["mask"]), int(facts["head_size"])
        problem = problem_of(dtype, stored, (size, size), keys, mask, DECODE_LENGTHS)
        assert isinstance(problem.arguments, AttentionArguments)
        return replace(problem, arguments=_decode(problem.arguments))

    def ways(self, kernel: KernelEntry, kernels: Catalogue) -> tuple[Way, ...]:
        return (lambda call, machine: (self.completed(call, machine),),)


OPERATOR = AttentionDecode()


def _family_of(request: DecodeRequest, kernels: Catalogue) -> Family | Verdict:
    """The kernels whose tile holds all rows of a request, the largest first; or the refusal."""
    found = attention_family.find(request, kernels)
    if isinstance(found, Verdict):
        return found
    rows = request.max_query_len * (request.num_heads // request.num_kv_heads)
    most = found[0].tile.rows
    why = f"{rows} rows of a KV head: the {kernels.arch} kernels have up to {most}"
    return _fitting(found, rows) or refused(why)


def _fitting(kernels: Family, rows: int) -> Family:
    """The kernels whose tile holds all rows of a request, the largest first."""
    return tuple(kernel for kernel in kernels if kernel.tile.rows >= rows)


def _decode(of: AttentionArguments) -> DecodeArguments:
    longest = int(of.query_start_loc.diff().max())
    known = {field.name: getattr(of, field.name) for field in fields(of)}
    return DecodeArguments(**known, max_query_len=longest)
