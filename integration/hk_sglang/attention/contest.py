"""Both ways to compute a kind of attention, to be timed: prefill and decode.

Prefill is measured on a fresh prompt, decode on batches of requests with one new token each. They
lie in the server's own pool and page table, which no request uses while a model is loaded, so the
parent is timed as it will serve. Both sides write the new keys to the pool. Neither makes metadata,
as a step does that once for all layers. Sinks are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

import torch
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode

from hk_backend.engine.evidence import Contest, planned, prompts_up_to
from hk_backend.ops import AttentionRequest, DecodeRequest
from hk_sglang.attention.batch import one_batch
from hk_sglang.limits import batch_tokens

REQUEST = 1
"""First row of the page table that a contest uses; row 0 is that of padding."""

Inputs = tuple[ForwardBatch, torch.Tensor, torch.Tensor, torch.Tensor]
"""A batch, query `[tokens, heads * channels]`, and keys and values `[tokens, heads, channels]`."""


class Attention(Protocol):
    """The parts of HK's backend (`hk_attention.HKAttention`) that a contest needs."""

    def rehearse(self, batch: Any) -> None:
        """Makes the metadata of a batch without a request, the parent's and HK's."""

    def attend(
        self, q: Any, k: Any, v: Any, layer: Any, batch: Any, save_kv_cache: bool, extra: Any
    ) -> torch.Tensor | None: ...


def prefill_contest(
    hk: Attention, backend: Any, runner: Any, layer: Any, request: AttentionRequest
) -> Contest:
    """Makes both sides compute the same fresh prompts in `layer`, one of the model's.

    Args:
        backend: the parent, not yet wrapped; its pool is `evidence.borrowed`.

    Raises:
        RuntimeError: a request has a place in the page table.
    """
    tables = runner.req_to_token_pool
    limit = min(places_of(runner.token_to_kv_pool), tables.max_context_len, batch_tokens())

    def batch_of(tokens: int) -> ForwardBatch:
        return batch_in_the_pool([(tokens, 0)], runner)

    sides = _sides(hk, backend.forward_extend, runner, layer, batch_of)
    return Contest(prompts_up_to(limit), *sides, planned(request))


def decode_contest(
    hk: Attention,
    backend: Any,
    runner: Any,
    layer: Any,
    request: DecodeRequest,
    requests: Sequence[int],
) -> Contest:
    """Makes both sides compute the same decode rows in `layer` (see `prefill_contest`).

    Args:
        request: the layer, with the keys of each of a batch's requests, their new one included.
        requests: numbers of requests.
    """
    keys = request.keys

    def batch_of(count: int) -> ForwardBatch:
        return batch_in_the_pool([(1, keys - 1)] * count, runner, ForwardMode.DECODE)

    sides = _sides(hk, backend.forward_decode, runner, layer, batch_of)
    return Contest(tuple(requests), *sides, planned(request))


Side = Callable[[int], Callable[[], torch.Tensor]]
"""Makes a side's call for a number of rows."""


def _sides(
    hk: Attention,
    forward: Callable[..., torch.Tensor],
    runner: Any,
    layer: Any,
    batch_of: Callable[[int], ForwardBatch],
) -> tuple[Side, Side]:
    """HK's and the parent's calls. Each number of rows has one batch, and metadata made once."""
    tables = runner.req_to_token_pool
    if tables.available_size() < tables.size:
        raise RuntimeError("requests run already")

    @cache
    def inputs(rows: int) -> Inputs:
        batch = batch_of(rows)
        hk.rehearse(batch)
        return batch, *tensors(len(batch.input_ids), layer, runner)

    def ours(rows: int) -> Callable[[], torch.Tensor]:
        batch, q, k, v = inputs(rows)

        def call() -> torch.Tensor:
            out = hk.attend(q, k, v, layer, batch, True, {})
            if out is None:
                raise RuntimeError("HK did not compute the batch")
            return out

        return call

    def theirs(rows: int) -> Callable[[], torch.Tensor]:
        batch, q, k, v = inputs(rows)
        return lambda: forward(q, k, v, layer, batch, save_kv_cache=True)

    return ours, theirs


def batch_in_the_pool(
    rows: Sequence[tuple[int, int]], runner: Any, mode: ForwardMode | None = None
) -> ForwardBatch:
    """Makes a batch in the pool's pages from 1 on, as a scheduler does.

    Args:
        rows: query and cached tokens of each request, all of one length.
    """
    pool, device = runner.token_to_kv_pool, runner.device
    [length] = {sum(row) for row in rows}
    first = pool.page_size
    slots = torch.arange(first, first + len(rows) * length, device=device)
    requests = torch.arange(REQUEST, REQUEST + len(rows), device=device)
    places = slots.view(len(rows), length)
    runner.req_to_token_pool.req_to_token[requests, :length] = places.to(torch.int32)
    mapping = getattr(pool, "full_to_swa_index_mapping", None)
    if mapping is not None:
        mapping[slots] = slots.to(mapping.dtype)
    new = [places[index, cached:] for index, (_, cached) in enumerate(rows)]
    batch = one_batch(rows, requests, torch.cat(new), mode)
    translator = runner.kv_index_translator
    if hasattr(translator, "own_plan"):  # triton and aiter find the slots through it
        translator.own_plan(batch).bind(batch, translator)
    return batch


def places_of(pool: Any) -> int:
    """Tokens that fit the smallest pool of a hybrid model, as a batch has slots in each."""
    parts = [getattr(pool, name, None) for name in ("full_kv_pool", "swa_kv_pool")]
    return min(int(part.size) for part in (pool, *parts) if part is not None)


def tensors(
    tokens: int, layer: Any, runner: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Makes random query, keys and values."""
    generator = torch.Generator(runner.device).manual_seed(0)

    def random(heads: int) -> torch.Tensor:
        shape = (tokens, heads, layer.qk_head_dim)
        return torch.randn(shape, generator=generator, dtype=runner.dtype, device=runner.device)

    query = random(layer.tp_q_head_num).flatten(1)
    return query, random(layer.tp_k_head_num), random(layer.tp_k_head_num)
