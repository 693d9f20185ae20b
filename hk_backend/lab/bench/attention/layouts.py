"""Paged caches to benchmark with, in every layout that an engine's cache has.

Each is filled from canonical `[B, H, N, D]` keys and values: blocks, KV heads, tokens, channels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from hk_backend.ops import PagedKV

Build = Callable[[torch.Tensor, torch.Tensor], PagedKV]


def _nhd(keys: torch.Tensor, values: torch.Tensor) -> PagedKV:
    keys, values = (x.transpose(1, 2).contiguous() for x in (keys, values))
    return PagedKV.from_views(keys, "B N H D", values, "B N H D")


def _hnd(keys: torch.Tensor, values: torch.Tensor) -> PagedKV:
    return PagedKV.from_views(keys, "B H N D", values, "B H N D")


def _packed(keys: torch.Tensor, values: torch.Tensor) -> PagedKV:
    return PagedKV.from_packed(torch.cat([keys, values], dim=3))


def _cpu_attn(keys: torch.Tensor, values: torch.Tensor) -> PagedKV:
    tokens, channels = keys.shape[2:]
    cache = torch.stack([keys.transpose(2, 3).flatten(2), values.flatten(2)], dim=2)
    key = cache[:, :, 0].unflatten(2, (channels, tokens))
    value = cache[:, :, 1].unflatten(2, (tokens, channels))
    return PagedKV.from_views(key, "B H D N", value, "B H N D")


def _cpu_attn_amx(keys: torch.Tensor, values: torch.Tensor) -> PagedKV:
    """The cache of vLLM's CPU attention with AMX.

    Each block and head has keys `[N/16, D/2, 16, 2]`, then values `[D/16, N/2, 16, 2]`.

    Raises:
        ValueError: the tokens of a block, or the channels, are not a multiple of 16.
    """
    if keys.shape[2] % 16 or keys.shape[3] % 16:
        raise ValueError(
            f"cpu_attn_amx: {keys.shape[2]} tokens in a block and a head size of {keys.shape[3]} "
            "are not valid: expected multiples of 16"
        )
    key = keys.unflatten(3, (-1, 2)).unflatten(2, (-1, 16)).transpose(3, 4)
    value = values.unflatten(3, (-1, 16)).unflatten(2, (-1, 2)).permute(0, 1, 4, 2, 5, 3)
    cache = torch.stack([key.flatten(2), value.flatten(2)], dim=2)
    key, value = (cache[:, :, part].unflatten(2, x.shape[2:]) for part, x in ((0, key), (1, value)))
    return PagedKV.from_views(key, "B H N/x D/y x y", value, "B H D/y N/x y x")


def _rocm_attn(keys: torch.Tensor, values: torch.Tensor) -> PagedKV:
    value = values.transpose(2, 3).contiguous()
    return PagedKV.from_views(_split_channels(keys), "B H D/x N x", value, "B H D N")


def _aiter_shuffled(keys: torch.Tensor, values: torch.Tensor) -> PagedKV:
    x = 16 // values.element_size()
    value = values.unflatten(2, (-1, x)).transpose(3, 4).contiguous()
    return PagedKV.from_views(_split_channels(keys), "B H D/x N x", value, "B H N/x D x")


def _split_channels(keys: torch.Tensor) -> torch.Tensor:
    """The keys as `[B, H, D/x, N, x]`, where x elements are 16 bytes."""
    x = 16 // keys.element_size()
    split: torch.Tensor = keys.unflatten(3, (-1, x))
    return split.permute(0, 1, 3, 2, 4).contiguous()


LAYOUTS: dict[str, Build] = {
    "nhd": _nhd,
    "hnd": _hnd,
    "packed": _packed,
    "cpu_attn": _cpu_attn,
    "cpu_attn_amx": _cpu_attn_amx,
    "rocm_attn": _rocm_attn,
    "aiter_shuffled": _aiter_shuffled,
}
"""Functions that build a cache, by the name of its layout.

nhd, hnd: two tensors. packed: `[B,H,N,2D]` (TRITON_ATTN, AITER). The other layouts have the names
of the engines' backends that use them.
"""


def paged(
    keys: torch.Tensor, values: torch.Tensor, layout: str, block_size: int
) -> tuple[PagedKV, torch.Tensor]:
    """Put one request's packed keys and values `[tokens, kv_heads, head_size]` into a cache.

    Returns:
        the cache, and its block table `[1, blocks]`. The blocks lie in random order, as in a server
        that has run for a while.
    """
    tokens, heads, size = keys.shape
    blocks = -(-tokens // block_size)
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(0))

    def canonical(packed: torch.Tensor) -> torch.Tensor:
        padded = packed.new_zeros(blocks * block_size, heads, size)
        padded[:tokens] = packed
        cache = torch.empty_like(padded).view(blocks, block_size, heads, size)
        cache[order] = padded.view_as(cache)
        return cache.transpose(1, 2).contiguous()

    cache = LAYOUTS[layout](canonical(keys), canonical(values))
    return cache, order.to(torch.int32)[None]
