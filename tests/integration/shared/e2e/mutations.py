"""Deliberate faults in HK's attention, and in its linear layers (linear_faults.py).

The end-to-end comparison must catch each. They wrap the public operator wherever the plugin holds
it, or the calls of a layer, in the plugin's process. The product knows nothing of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch

from hk_backend.ops import PagedKV
from hk_backend.ops import attention_prefill as healthy
from hk_backend.reference import gather_paged
from tests.integration.shared.defaults.faults import (
    Fault,
    PageOffByOne,
    ValuesAsRows,
    WrongScale,
    take_speculative_rows,
)
from tests.integration.shared.e2e import linear_faults
from tests.integration.shared.e2e.linear_faults import LINEAR_FAULTS

T = torch.Tensor
Mutation = Callable[[T, T, T, T, float], object]
"""A fault in one request of a call.

It gets the request's queries, its packed keys and values, its outputs and the scale.
"""


def attend(query: T, key: T, value: T, scale: float) -> T:
    """The output of the healthy operator."""
    of_query, of_key = (torch.tensor([0, len(side)], dtype=torch.int32) for side in (query, key))
    output = healthy(query, key, value, query_start_loc=of_query, key_start_loc=of_key, scale=scale)
    assert isinstance(output, torch.Tensor)
    return output


def scaled_output(query: T, key: T, value: T, out: T, scale: float) -> None:
    """Make every output 2 % too large."""
    out.mul_(1.02)


def swapped_heads(query: T, key: T, value: T, out: T, scale: float) -> None:
    """Exchange the first and the last query head, which belong to different KV heads."""
    out[:, [0, -1]] = out[:, [-1, 0]]


def dropped_last_key(query: T, key: T, value: T, out: T, scale: float) -> None:
    """Hide the last key of the sequence; only the last query could see it."""
    if len(key) > 1:
        out[-1:] = attend(query[-1:], key[:-1], value[:-1], scale)


def ignored_prefix(query: T, key: T, value: T, out: T, scale: float) -> None:
    """Hide all keys but those of the new tokens, whatever the cache holds."""
    out[:] = attend(query, key[-len(query) :], value[-len(query) :], scale)


MUTATIONS: dict[str, Mutation] = {
    mutation.__name__: mutation
    for mutation in (scaled_output, swapped_heads, dropped_last_key, ignored_prefix)
}

CACHE_FAULTS: dict[str, type[Fault]] = {
    fault.__name__: fault for fault in (PageOffByOne, ValuesAsRows, WrongScale)
}
"""Faults in how a cache is read. On a GPU only a layer's first call reaches the public operator."""

mutated_calls = 0
"""Calls with a fault in this process: a fault that never ran proves nothing."""
_broken = pytest.MonkeyPatch()


def install(name: str) -> None:
    """Put the fault `name` under the plugin of this process; an empty name heals it."""
    _broken.undo()
    plugin = sys.modules.get("hk_backend.engine.attention")
    if not name or plugin is None:
        return
    if name in LINEAR_FAULTS:
        linear_faults.install(name, _broken, _count)
    elif name in CACHE_FAULTS:
        CACHE_FAULTS[name](_count).install(_broken)
    elif name == take_speculative_rows.__name__:
        take_speculative_rows(_broken, _count)
    else:
        _broken.setattr(plugin, "attention_prefill", _faulty(MUTATIONS[name]))
        _broken.setattr(plugin.AttentionRoute, "launch", _unprepared)


def _unprepared(
    self: Any, step: Any, paged: bool, tensors: Any, arguments: Callable[[], Any]
) -> None:
    """Launches through the public operator, as a prepared call would leave the fault out."""
    self._meet(step, paged, tensors, arguments())


def _count() -> None:
    global mutated_calls  # noqa: PLW0603
    mutated_calls += 1


def _faulty(mutation: Mutation) -> Callable[..., T]:
    def attention_prefill(query: T, *packed: Any, **rest: Any) -> T:
        _count()
        out = healthy(query, *packed, **rest)
        assert isinstance(out, torch.Tensor)
        for row, (start, end) in enumerate(pairwise(rest["query_start_loc"].tolist())):
            if start < end:
                keys, values = _of_row(row, slice(start, end), *packed, **rest)
                mutation(query[start:end], keys, values, out[start:end], rest["scale"])
        return out

    return attention_prefill


def _of_row(
    row: int,
    new: slice,
    key: T | None = None,
    value: T | None = None,
    paged_kv: PagedKV | None = None,
    **rest: Any,
) -> tuple[T, T]:
    """The keys and values of a request, whose new tokens are `new` of the packed ones."""
    if paged_kv is not None:
        blocks, length = rest["block_table"][row], int(rest["seq_lens"][row])
        key, value = (
            gather_paged(side, paged_kv, blocks, length) for side in (paged_kv.key, paged_kv.value)
        )
        return key, value
    assert key is not None
    assert value is not None
    return key[new], value[new]
