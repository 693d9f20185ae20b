"""Every KV-cache layout that an engine has, written out by hand.

Each entry turns canonical caches `[B, H, N, D]` (blocks, KV heads, tokens of a block, channels)
into the engine's tensors by reshaping and permuting alone. `PagedKV`'s own arithmetic is not used:
a test must not compare it with itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from hk_backend.ops import PagedKV


@dataclass(frozen=True)
class Layout:
    """`build(keys, values)` turns canonical caches into a `PagedKV`. A split axis must be a
    multiple of `split_of`, channels and tokens of `multiple_of`. `one_size`: keys and values have
    as many channels."""

    build: Callable[[torch.Tensor, torch.Tensor], PagedKV]
    one_size: bool = False
    splits_channels: bool = False
    splits_tokens: bool = False
    multiple_of: int = 1

    def fits(
        self, block_size: int, head_size: int, dtype: torch.dtype, value_size: int | None = None
    ) -> bool:
        if self.one_size and value_size not in (None, head_size):
            return False
        if any(size % self.multiple_of for size in (block_size, head_size, value_size or 0)):
            return False
        x = split_of(dtype)
        channels_fit = not self.splits_channels or head_size % x == 0
        tokens_fit = not self.splits_tokens or block_size % x == 0
        return channels_fit and tokens_fit


def split_of(dtype: torch.dtype) -> int:
    """The inner part `x` of a split axis: 16 bytes, as in ROCM_ATTN and AITER."""
    return 16 // dtype.itemsize


def stored(tensor: torch.Tensor, *order: int) -> torch.Tensor:
    """`tensor` laid out in memory in the order of axes `order`, and seen in that order."""
    return tensor.permute(*order).contiguous()


def nhd(cache: torch.Tensor) -> torch.Tensor:
    return stored(cache, 0, 2, 1, 3)


def split_channels(cache: torch.Tensor, x: int = 0) -> torch.Tensor:
    """`[B, H, D/x, N, x]`; 0: an x of 16 bytes."""
    return stored(cache.unflatten(3, (-1, x or split_of(cache.dtype))), 0, 1, 3, 2, 4)


def split_tokens(cache: torch.Tensor, x: int = 0) -> torch.Tensor:
    """`[B, H, N/x, D, x]`; 0: an x of 16 bytes."""
    return stored(cache.unflatten(2, (-1, x or split_of(cache.dtype))), 0, 1, 2, 4, 3)


def cpu_attn(keys: torch.Tensor, values: torch.Tensor) -> PagedKV:
    """CPU_ATTN: per block and head K `[D, N]` and then V `[N, D]`, in one storage."""
    blocks, heads, tokens, channels = keys.shape
    storage = torch.cat([stored(keys, 0, 1, 3, 2).flatten(2), values.flatten(2)], dim=2)
    plane = tokens * channels
    outer = (2 * heads * plane, 2 * plane)
    key = storage.as_strided((blocks, heads, channels, tokens), (*outer, tokens, 1))
    value = storage.as_strided((blocks, heads, tokens, channels), (*outer, channels, 1), plane)
    return PagedKV.from_views(key, "B H D N", value, "B H N D")


def pairs_of_channels(cache: torch.Tensor) -> torch.Tensor:
    """`[B, H, N/16, D/2, 16, 2]`."""
    split = cache.unflatten(3, (-1, 2)).unflatten(2, (-1, 16))
    return stored(split, 0, 1, 2, 4, 3, 5)


def pairs_of_tokens(cache: torch.Tensor) -> torch.Tensor:
    """`[B, H, D/16, N/2, 16, 2]`."""
    split = cache.unflatten(3, (-1, 16)).unflatten(2, (-1, 2))
    return stored(split, 0, 1, 4, 2, 5, 3)


def cpu_attn_amx(keys: torch.Tensor, values: torch.Tensor) -> PagedKV:
    """CPU_ATTN for AMX: per block and head pairs of keys' channels for 16 keys, and then pairs of
    values' tokens for 16 channels, in one storage."""
    parts = pairs_of_channels(keys), pairs_of_tokens(values)
    storage = torch.cat([part.flatten(2) for part in parts], dim=2)
    plane = parts[0][0, 0].numel()
    outer = storage.stride()[:2]
    key, value = (
        storage.as_strided(part.shape, (*outer, *part.stride()[2:]), start)
        for part, start in zip(parts, (0, plane), strict=True)
    )
    return PagedKV.from_views(key, "B H N/x D/y x y", value, "B H D/y N/x y x")


def packed_nhd_strides(keys: torch.Tensor, values: torch.Tensor) -> PagedKV:
    """Logical `[B, H, N, 2D]` whose memory is NHD: what vLLM's NHD setting hands over."""
    both = torch.cat([keys, values], dim=3)
    return PagedKV.from_packed(nhd(both).permute(0, 2, 1, 3))


def side_by_side(keys: torch.Tensor, values: torch.Tensor) -> PagedKV:
    """`[B, N, H, Dk + Dv]`: vLLM's caches of keys and values of different sizes."""
    both = torch.cat([nhd(keys), nhd(values)], dim=3)
    key, value = both.split((keys.shape[3], values.shape[3]), dim=3)
    return PagedKV.from_views(key, "B N H D", value, "B N H D")


def padded_rows(keys: torch.Tensor, values: torch.Tensor) -> PagedKV:
    """NHD in the middle of wider rows and blocks, so that nothing is aligned or adjacent."""

    def widen(cache: torch.Tensor) -> torch.Tensor:
        cache = nhd(cache)
        blocks, tokens, heads, channels = cache.shape
        wide = torch.full((blocks, tokens + 1, heads, channels + 3), float("nan"))
        wide = wide.to(cache.dtype)
        inside = wide[:, :tokens, :, 1 : channels + 1]
        inside.copy_(cache)
        return inside

    return PagedKV.from_views(widen(keys), "B N H D", widen(values), "B N H D")


LAYOUTS: dict[str, Layout] = {
    "NHD, two tensors": Layout(
        lambda k, v: PagedKV.from_views(nhd(k), "B N H D", nhd(v), "B N H D")
    ),
    "HND, two tensors": Layout(
        lambda k, v: PagedKV.from_views(k.clone(), "B H N D", v.clone(), "B H N D")
    ),
    "one [2,B,N,H,D]": Layout(
        lambda k, v: PagedKV.from_pair(torch.stack([nhd(k), nhd(v)], 0), "2 B N H D"), one_size=True
    ),
    "one [B,2,N,H,D]": Layout(
        lambda k, v: PagedKV.from_pair(torch.stack([nhd(k), nhd(v)], 1), "B 2 N H D"), one_size=True
    ),
    "one [B,H,2,N,D]": Layout(
        lambda k, v: PagedKV.from_pair(torch.stack([k, v], 2), "B H 2 N D"), one_size=True
    ),
    "one [B,H,N,2D]": Layout(
        lambda k, v: PagedKV.from_packed(torch.cat([k, v], dim=3)), one_size=True
    ),
    "one [B,H,N,2D], NHD strides": Layout(packed_nhd_strides, one_size=True),
    "one [B,N,H,2D]": Layout(
        lambda k, v: PagedKV.from_packed(torch.cat([nhd(k), nhd(v)], dim=3), "B N H 2D"),
        one_size=True,
    ),
    "one [B,N,H,Dk+Dv]": Layout(side_by_side),
    "ROCM_ATTN: [B,H,D/x,N,x] and [B,H,D,N]": Layout(
        lambda k, v: PagedKV.from_views(
            split_channels(k), "B H D/x N x", stored(v, 0, 1, 3, 2), "B H D N"
        ),
        splits_channels=True,
    ),
    "AITER shuffled: [B,H,D/x,N,x] and [B,H,N/x,D,x]": Layout(
        lambda k, v: PagedKV.from_views(
            split_channels(k), "B H D/x N x", split_tokens(v), "B H N/x D x"
        ),
        splits_channels=True,
        splits_tokens=True,
    ),
    "CPU_ATTN: K [D,N], V [N,D], one storage": Layout(cpu_attn, one_size=True),
    "CPU_ATTN for AMX: K [N/16,D/2,16,2], V [D/16,N/2,16,2], one storage": Layout(
        cpu_attn_amx, multiple_of=16
    ),
    "pairs: [B,H,D/2,N,2] and [B,H,N/2,D,2]": Layout(
        lambda k, v: PagedKV.from_views(
            split_channels(k, 2), "B H D/x N x", split_tokens(v, 2), "B H N/x D x"
        ),
        multiple_of=2,
    ),
    "token innermost: [H,D,B,N]": Layout(
        lambda k, v: PagedKV.from_views(
            stored(k, 1, 3, 0, 2), "H D B N", stored(v, 1, 3, 0, 2), "H D B N"
        )
    ),
    "padded rows": Layout(padded_rows),
}
