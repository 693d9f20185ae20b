"""ROCM_ATTN: keys `[B, H, D/x, N, x]`, values `[B, H, D, N]`, x = 16 bytes."""

from __future__ import annotations

import torch

from tests.integration.hk_vllm.rocm.torch_kernels.common import places, to_cache
from tests.integration.shared.attention.torch_kernels import attend, numbers, rows


def chunked_prefill_paged_decode(
    *,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    output: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
    sm_scale: float,
    causal: bool,
    sliding_window: int = 0,
    sinks: torch.Tensor | None = None,
    **_rest: object,
) -> None:
    """New tokens of a prefill row come from `key` and `value`, all others from the cache."""
    for row, (first, last) in enumerate(rows(query_start_loc)):
        length = int(seq_lens[row])
        if last == first:
            continue
        blocks = block_table[row, : -(-length // value_cache.shape[3])].long()
        keys, values = (
            numbers(side.flatten(0, 1)[:length], scale)
            for side, scale in zip(
                x_packed_as_pages(key_cache[blocks], value_cache[blocks]),
                (k_scale, v_scale),
                strict=True,
            )
        )
        if last - first > 1:
            context = length - (last - first)
            keys = torch.cat([keys[:context], key[first:last]])
            values = torch.cat([values[:context], value[first:last]])
        output[first:last], _ = attend(
            query[first:last],
            keys,
            values,
            sm_scale,
            causal=causal,
            window=sliding_window,
            sinks=sinks,
        )


def write_x_packed(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache_dtype: str,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
) -> None:
    """`reshape_and_cache`: K `[B, H, D/x, N, x]`, V `[B, H, D, N]`."""
    token, block, offset = places(slot_mapping, key_cache.shape[3])
    packed = key[token].unflatten(-1, (-1, key_cache.shape[4]))
    key_cache[block, :, :, offset, :] = to_cache(packed, key_cache, k_scale)
    value_cache[block, :, :, offset] = to_cache(value[token], value_cache, v_scale)


def x_packed_as_pages(
    key_cache: torch.Tensor, value_cache: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies `[B, N, H, D]` of a cache K `[B, H, D/x, N, x]`, V `[B, H, D, N]`."""
    return key_cache.permute(0, 3, 1, 2, 4).flatten(3), value_cache.permute(0, 3, 1, 2)
