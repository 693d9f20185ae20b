"""One call of `attention_prefill` as a small description, and the tensors that it stands for.

Whatever must not matter holds NaN, always: cache slots past a sequence, unused blocks, the
tokens that no request owns, keys before every window. A test that only looks at numbers thereby
also tests what is read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from hk_backend.ops import PagedKV
from hk_backend.terms.attention_arguments import AttentionArguments
from tests.ops.layouts import LAYOUTS

Call = dict[str, Any]
"""Keyword arguments of `attention_prefill`."""


def arguments(call: Call, **changes: Any) -> AttentionArguments:
    """Arguments for a device or the reference, with an output if the call brings none."""
    return AttentionArguments(**{"out": output_of(call), **call, **changes})


def output_of(call: Call) -> torch.Tensor:
    """Room for the output of a call."""
    query, paged_kv = call["query"], call.get("paged_kv")
    channels = call["value"].shape[2] if paged_kv is None else paged_kv.value_size
    return query.new_empty(*query.shape[:2], channels)


@dataclass(frozen=True)
class Case:
    """`lengths`: (query tokens, keys) of each request. `layout`: a name in LAYOUTS, or packed.

    `k_scale`, `v_scale`: "off", "number", "one" (a tensor `[1]`) or "per head".
    `value_size`: channels of a value; None: `head_size`.
    `before`, `after`: tokens that belong to no request. `magnitude`: of queries and keys.
    """

    lengths: tuple[tuple[int, int], ...] = ((40, 40),)
    num_heads: int = 2
    num_kv_heads: int = 1
    head_size: int = 64
    dtype: torch.dtype = torch.float32
    kv_dtype: torch.dtype | None = None
    layout: str | None = None
    block_size: int = 16
    value_size: int | None = None
    causal: bool = True
    sliding_window: int | None = None
    logits_soft_cap: float | None = None
    scale: float | None = None
    sinks: bool = False
    alibi: bool = False
    k_scale: str = "off"
    v_scale: str = "off"
    before: int = 0
    after: int = 0
    magnitude: float = 1.5
    seed: int = 0

    def but(self, **changes: Any) -> Case:
        return replace(self, **changes)


def make(case: Case) -> Call:
    """The call that `case` describes; the same case always gives the same tensors."""
    random = torch.Generator().manual_seed(case.seed)
    kv_dtype = case.kv_dtype or case.dtype

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random)

    starts = running_total(case.before, [queries for queries, _ in case.lengths])
    query = nan(starts[-1] + case.after, case.num_heads, case.head_size, dtype=case.dtype)
    owned = query[starts[0] : starts[-1]]
    owned.copy_(normal(*owned.shape) * case.magnitude)
    key_lengths = [keys for _, keys in case.lengths]
    rows = (sum(key_lengths), case.num_kv_heads)
    keys = (normal(*rows, case.head_size) * case.magnitude).to(kv_dtype)
    values = normal(*rows, case.value_size or case.head_size).to(kv_dtype)
    for hidden in before_windows(case):
        for stored in keys, values:
            stored[hidden] = torch.nan
    call: Call = {
        "query": query,
        "query_start_loc": int32(starts),
        "causal": case.causal,
        "sliding_window": case.sliding_window,
        "logits_soft_cap": case.logits_soft_cap,
        "scale": case.scale,
        "sinks": normal(case.num_heads) if case.sinks else None,
        "alibi_slopes": slopes(case.num_heads) if case.alibi else None,
        "k_scale": scale_factor(case.k_scale, case.num_kv_heads, 0.5),
        "v_scale": scale_factor(case.v_scale, case.num_kv_heads, 1.7),
    }
    if case.layout is None:
        call["key_start_loc"] = int32(running_total(case.before, key_lengths))
        call["key"] = surrounded(keys, case.before, case.after)
        call["value"] = surrounded(values, case.before, case.after)
        if case.before == 0 and all(queries == keys for queries, keys in case.lengths):
            del call["key_start_loc"]  # the default: that of the queries
    else:
        call |= paged(keys, values, key_lengths, case.layout, case.block_size, random)
    return call


def paged(
    keys: torch.Tensor,
    values: torch.Tensor,
    lengths: list[int],
    layout: str,
    block_size: int,
    random: torch.Generator,
) -> Call:
    """Packed keys and values in a cache: blocks in random order, NaN wherever no token lies."""
    needed = [-(-length // block_size) for length in lengths]
    unused = 2
    order = torch.randperm(sum(needed) + unused, generator=random).tolist()
    width = max([*needed, 0]) + 1
    table = torch.full((len(lengths), width), -1, dtype=torch.int32)  # past the sequence: junk
    table[::2] = 2**31 - 1
    caches = [
        nan(len(order), block_size, *packed.shape[1:], dtype=packed.dtype)
        for packed in (keys, values)
    ]
    first = 0
    for request, length in enumerate(lengths):
        blocks, order = order[: needed[request]], order[needed[request] :]
        table[request, : len(blocks)] = int32(blocks)
        slots = torch.tensor(
            [blocks[i // block_size] * block_size + i % block_size for i in range(length)],
            dtype=torch.long,
        )
        for cache, packed in zip(caches, (keys, values), strict=True):
            cache.flatten(0, 1)[slots] = packed[first : first + length]
        first += length
    canonical = [cache.transpose(1, 2).contiguous() for cache in caches]
    paged_kv: PagedKV = LAYOUTS[layout].build(*canonical)
    return {"paged_kv": paged_kv, "block_table": table, "seq_lens": int32(lengths)}


def before_windows(case: Case) -> Iterator[slice]:
    """The keys of each request, among all keys, that none of its queries sees."""
    first = 0
    for queries, keys in case.lengths:
        if case.sliding_window is not None:
            hidden = min(keys, max(keys - queries + 1 - case.sliding_window, 0))
            yield slice(first, first + hidden)
        first += keys


def nan(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.full(shape, float("nan")).to(dtype)


def surrounded(tensor: torch.Tensor, before: int, after: int) -> torch.Tensor:
    """`tensor` with rows of NaN before and after."""
    rest = tensor.shape[1:]
    ends = [nan(count, *rest, dtype=tensor.dtype) for count in (before, after)]
    return torch.cat([ends[0], tensor, ends[1]])


def running_total(first: int, lengths: list[int]) -> list[int]:
    return list(itertools.accumulate(lengths, initial=first))


def int32(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def slopes(num_heads: int) -> torch.Tensor:
    """ALiBi's geometric slopes (https://arxiv.org/abs/2108.12409)."""
    return torch.tensor([2.0 ** (-8.0 * (head + 1) / num_heads) for head in range(num_heads)])


def scale_factor(kind: str, num_kv_heads: int, around: float) -> float | torch.Tensor:
    if kind == "off":
        return 1.0
    if kind == "number":
        return around
    if kind == "one":
        return torch.tensor([around])
    assert kind == "per head"
    return around * (1 + torch.arange(num_kv_heads, dtype=torch.float32) / num_kv_heads)
