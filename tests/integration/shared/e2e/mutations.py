"""Deliberate faults in HK's attention, and in its linear layers (linear_faults.py): what the
end-to-end comparison must catch.

They wrap the public operator wherever the plugin holds it, or the calls of a layer, in whatever
process the plugin lives; the product knows nothing of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Request:
    """One request of a call: views of its queries and outputs, its keys and values packed."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    out: torch.Tensor
    scale: float

    def attend(self, queries: slice, keys: slice) -> torch.Tensor:
        """What the healthy operator gives for some of the queries over some of the keys."""
        query, key, value = self.query[queries], self.key[keys], self.value[keys]
        output = healthy(
            query,
            key,
            value,
            query_start_loc=torch.tensor([0, len(query)], dtype=torch.int32),
            key_start_loc=torch.tensor([0, len(key)], dtype=torch.int32),
            scale=self.scale,
        )
        assert isinstance(output, torch.Tensor)
        return output


def scaled_output(request: Request) -> None:
    """Every output 2 % too large."""
    request.out.mul_(1.02)


def swapped_heads(request: Request) -> None:
    """The first and the last query head exchanged: they belong to different KV heads."""
    request.out[:, [0, -1]] = request.out[:, [-1, 0]]


def dropped_last_key(request: Request) -> None:
    """The last key of the sequence unseen; only the last query could see it."""
    if len(request.key) > 1:
        request.out[-1:] = request.attend(slice(-1, None), slice(-1))


def ignored_prefix(request: Request) -> None:
    """Only the keys of the new tokens seen, whatever the cache holds."""
    request.out[:] = request.attend(slice(None), slice(-len(request.query), None))


MUTATIONS: dict[str, Callable[[Request], None]] = {
    mutation.__name__: mutation
    for mutation in (scaled_output, swapped_heads, dropped_last_key, ignored_prefix)
}

CACHE_FAULTS: dict[str, type[Fault]] = {
    fault.__name__: fault for fault in (PageOffByOne, ValuesAsRows, WrongScale)
}
"""In how a cache is read. On a GPU only the first call of a layer comes to the public operator."""

SPLIT_ROWS = "hk_vllm.attention.builder.split_rows"

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
        take_speculative_rows(_broken, SPLIT_ROWS, _count)
    else:
        _broken.setattr(plugin, "attention_prefill", _faulty(MUTATIONS[name]))


def _count() -> None:
    global mutated_calls  # noqa: PLW0603
    mutated_calls += 1


def _faulty(mutation: Callable[[Request], None]) -> Callable[..., torch.Tensor]:
    def attention_prefill(query: torch.Tensor, *packed: Any, **rest: Any) -> torch.Tensor:
        _count()
        out = healthy(query, *packed, **rest)
        assert isinstance(out, torch.Tensor)
        for request in _requests(query, *packed, **{**rest, "out": out}):
            mutation(request)
        return out

    return attention_prefill


def _requests(
    query: torch.Tensor,
    key: torch.Tensor | None = None,
    value: torch.Tensor | None = None,
    *,
    query_start_loc: torch.Tensor,
    paged_kv: PagedKV | None = None,
    block_table: torch.Tensor | None = None,
    seq_lens: torch.Tensor | None = None,
    scale: float,
    out: torch.Tensor,
    **_: Any,
) -> Iterator[Request]:
    starts = query_start_loc.tolist()
    for row, (start, end) in enumerate(pairwise(starts)):
        if start == end:
            continue
        if paged_kv is None:
            assert key is not None
            assert value is not None
            keys, values = key[start:end], value[start:end]
        else:
            assert block_table is not None
            assert seq_lens is not None
            blocks, length = block_table[row], int(seq_lens[row])
            keys = gather_paged(paged_kv.key, paged_kv, blocks, length)
            values = gather_paged(paged_kv.value, paged_kv, blocks, length)
        yield Request(query[start:end], keys, values, out[start:end], scale)
