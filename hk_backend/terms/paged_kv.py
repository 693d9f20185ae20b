"""`PagedKV`: describes an engine's KV cache, so that kernels read it in place.

A cache is addressed by (block, head, token in block, channel). Engines store these axes in many
orders. Some split token, channel or both into an outer and an inner part, so that a kernel reads
`x` neighbours at once. Plain strides cannot express that, so six strides and two split sizes
describe each tensor. They are derived from a *layout string*, which names the axes of the tensor.

`"B H N D"`: vLLM HND.
`"B N H D"`: vLLM NHD, and SGLang's pool.
`"B H N 2D"`: keys, then values, in one row per token (one tensor for both).
`"B H D N"`: channel-major, values of ROCM_ATTN and keys of CPU_ATTN.
`"B H D/x N x"`: keys of ROCM_ATTN and of AITER's shuffled layout.
`"B H N/x D x"`: values of AITER's shuffled layout.
`"B H N/x D/y x y"`, `"B H D/y N/x y x"`: keys and values of CPU_ATTN for AMX.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

_AXES = ("B", "H", "N", "D")
_INNER: tuple[list[str], ...] = ([], ["x"], ["y"], ["x", "y"])  # a layout may have inner parts


@dataclass(frozen=True)
class CacheView:
    """One cache tensor (keys or values) and how (block, head, token, channel) address it.

    Elements from `tensor.data_ptr()` to one (block, head, token, channel):

        block * strides[0] + head * strides[1]
        + token // token_split * strides[2] + token % token_split * strides[3]
        + channel // channel_split * strides[4] + channel % channel_split * strides[5]
    """

    tensor: torch.Tensor
    strides: tuple[int, int, int, int, int, int]
    token_split: int
    channel_split: int

    def as_ints(self) -> list[int]:
        """Strides and splits as the flat list that the operator schema carries."""
        return [*self.strides, self.token_split, self.channel_split]

    @classmethod
    def from_ints(cls, tensor: torch.Tensor, ints: Sequence[int]) -> CacheView:
        """Rebuilds the view from the tensor and the result of `as_ints`."""
        block, head, token, inner_token, channel, inner_channel, *splits = ints
        return cls(tensor, (block, head, token, inner_token, channel, inner_channel), *splits)


@dataclass(frozen=True)
class PagedKV:
    """Keys and values of one layer's cache.

    Build it with `from_views` (two tensors), `from_pair` (one tensor, keys and values along
    a leading or second axis of size 2) or `from_packed` (`[B, H, N, 2D]`). It holds views:
    nothing is copied, so it stays valid as long as the engine keeps its cache.
    """

    key: CacheView
    value: CacheView
    num_blocks: int
    block_size: int
    num_kv_heads: int
    head_size: int
    value_size: int
    """Channels of a value. `head_size` is those of a key."""

    @property
    def dtype(self) -> torch.dtype:
        return self.key.tensor.dtype

    @classmethod
    def from_views(
        cls, key: torch.Tensor, key_layout: str, value: torch.Tensor, value_layout: str
    ) -> PagedKV:
        """Keys and values in two tensors (or two views of one), each with its layout string.

        Raises:
            ValueError: a layout string is not of the form above or does not fit its tensor, or
                keys and values differ in blocks, heads or tokens.
        """
        key_sizes, key_view = _parse(key, key_layout, "key")
        value_sizes, value_view = _parse(value, value_layout, "value")
        if key_sizes[:3] != value_sizes[:3]:
            raise ValueError(
                f"value: its (blocks, heads, block_size) {value_sizes[:3]} differ "
                f"from those of key, {key_sizes[:3]}"
            )
        if key.dtype != value.dtype or key.device != value.device:
            raise ValueError(
                f"value: {value.dtype} on {value.device} differs from key, "
                f"{key.dtype} on {key.device}"
            )
        blocks, heads, block_size, head_size = key_sizes
        return cls(key_view, value_view, blocks, block_size, heads, head_size, value_sizes[3])

    @classmethod
    def from_packed(cls, cache: torch.Tensor, layout: str = "B H N 2D") -> PagedKV:
        """One tensor whose last axis holds a token's key and then its value (any strides).

        Raises:
            ValueError: `layout` does not end in "2D" or does not fit the tensor.
        """
        axes = layout.split()
        if not axes or axes[-1] != "2D":
            raise ValueError(f'layout: {layout!r} is not valid: expected one that ends in "2D"')
        if cache.dim() != len(axes) or cache.shape[-1] % 2:
            raise ValueError(
                f"cache: shape {tuple(cache.shape)} does not fit layout {layout!r}, "
                "whose last axis is twice the head size"
            )
        key, value = cache.chunk(2, dim=-1)
        halves = " ".join([*axes[:-1], "D"])
        return cls.from_views(key, halves, value, halves)

    @classmethod
    def from_pair(cls, cache: torch.Tensor, layout: str) -> PagedKV:
        """One tensor with an axis "2" that selects key or value: "2 B N H D", "B 2 N H D".

        Raises:
            ValueError: `layout` has no axis "2" or does not fit the tensor.
        """
        axes = layout.split()
        if axes.count("2") != 1 or cache.dim() != len(axes):
            raise ValueError(
                f"layout: {layout!r} is not valid for shape {tuple(cache.shape)}: expected one "
                'name an axis, "2" among them'
            )
        axis = axes.index("2")
        if cache.shape[axis] != 2:
            raise ValueError(f"cache: axis {axis} has size {cache.shape[axis]}, not 2")
        rest = " ".join(axes[:axis] + axes[axis + 1 :])
        return cls.from_views(cache.select(axis, 0), rest, cache.select(axis, 1), rest)

    def as_ints(self) -> list[int]:
        """The flat description that the operator schema carries (21 integers)."""
        counts = (self.num_blocks, self.block_size, self.num_kv_heads)
        channels = (self.head_size, self.value_size)
        return [*self.key.as_ints(), *self.value.as_ints(), *counts, *channels]

    @classmethod
    def from_ints(cls, key: torch.Tensor, value: torch.Tensor, ints: Sequence[int]) -> PagedKV:
        """Rebuilds the cache from its two tensors and the result of `as_ints`."""
        views = CacheView.from_ints(key, ints[:8]), CacheView.from_ints(value, ints[8:16])
        return cls(*views, *ints[16:])


def _parse(
    tensor: torch.Tensor, layout: str, name: str
) -> tuple[tuple[int, int, int, int], CacheView]:
    """Sizes (B, H, N, D) and addressing of one tensor, according to its layout string."""
    axes = layout.split()
    inner = dict(axis.split("/", 1) for axis in axes if "/" in axis)  # {"N": "x"}: N is split
    parts = sorted(inner.values())
    plain = sorted(axis.partition("/")[0] for axis in axes)
    if plain != sorted([*_AXES, *parts]) or parts not in _INNER or not inner.keys() <= {"N", "D"}:
        raise ValueError(
            f"{name}_layout: {layout!r} is not valid: expected the axes B, H, N and D once each, "
            'N and D perhaps split, as "N/x" and "D/y" with axes "x" and "y" for the inner parts'
        )
    if tensor.dim() != len(axes):
        raise ValueError(
            f"{name}: shape {tuple(tensor.shape)} has {tensor.dim()} axes, "
            f"layout {layout!r} has {len(axes)}"
        )
    size = dict(zip(axes, tensor.shape, strict=True))
    stride = dict(zip(axes, tensor.stride(), strict=True))

    def axis(letter: str) -> tuple[int, int, int, int]:
        """Returns (size, outer stride, inner stride, split) of N or D."""
        if letter not in inner:
            return size[letter], 0, stride[letter], max(size[letter], 1)
        part = inner[letter]
        outer = f"{letter}/{part}"
        return size[outer] * size[part], stride[outer], stride[part], max(size[part], 1)

    tokens, token_outer, token_inner, token_split = axis("N")
    channels, channel_outer, channel_inner, channel_split = axis("D")
    view = CacheView(
        tensor,
        (stride["B"], stride["H"], token_outer, token_inner, channel_outer, channel_inner),
        token_split,
        channel_split,
    )
    return (size["B"], size["H"], tokens, channels), view
