"""Each parent's form of keys and values: from the tensor that vLLM hands a layer to `PagedKV`.

Nothing is copied and nothing is re-laid: a form only names the axes that the parent's own kernels
see. From vLLM 0.29 on a layer is handed a logical view `[B, H, N, C]`: blocks, head slots, tokens
of a block, content (`C` is `2 * head_size` unless the backend customises it).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hk_backend.engine.cache_proof import UnknownCacheForm
from hk_backend.ops import PagedKV

Views = tuple[torch.Tensor, torch.Tensor]
Scales = tuple[torch.Tensor | float, torch.Tensor | float]


def layer_scales(layer: Any) -> Scales:
    """The layer's own scales, one for the cache or for each head. A prepared launch keeps their
    memory."""
    return layer._k_scale.view(-1), layer._v_scale.view(-1)


def shuffled_scales(layer: Any) -> Scales:
    """Scales of 1, a constant of the kernels that write and gather, whatever the layer's are."""
    return 1.0, 1.0


@dataclass(frozen=True)
class CacheForm:
    """One way to store a cache.

    Args:
        split: keys and values of a layer's cache, views with the axes that `layouts` name, from
            `kv_cache` and `impl`.
        layouts: layout strings of keys and values (see `PagedKV`).
        fp8: whether an FP8 cache has the same form.
        scales: for a layer, the factors of an FP8 cache's keys and values in the parent's kernels.
    """

    split: Callable[[torch.Tensor, Any], Views]
    layouts: tuple[str, str]
    fp8: bool = True
    scales: Callable[[Any], Scales] = layer_scales

    def read(self, kv_cache: torch.Tensor, impl: Any) -> PagedKV:
        """Describes the cache of a layer."""
        key, value = self.split(kv_cache, impl)
        return PagedKV.from_views(key, self.layouts[0], value, self.layouts[1])


FormOf = Callable[[Any], CacheForm]
"""Returns a parent's form for its builder.

Raises:
    UnknownCacheForm: HK does not read the form; the message says which.
"""


def split_cpu_attn(kv_cache: torch.Tensor, impl: Any) -> Views:
    """Splits CPU_ATTN's `vec` and `vec16`: per block and head keys `[D, N]`, values `[N, D]`."""
    keys, values = _halves_of_heads(kv_cache, impl)
    size = (impl.head_size, kv_cache.shape[2])
    return keys.unflatten(2, size), values.unflatten(2, size[::-1])


def split_cpu_attn_amx(kv_cache: torch.Tensor, impl: Any) -> Views:
    """Splits CPU_ATTN's `amx`.

    Per block and head it has keys `[N/16, D/2, 16, 2]`, then values `[D/16, N/2, 16, 2]`. These are
    operands of tdpbf16ps: pairs along the axis that is summed over, 16 of them in a row.
    """
    keys, values = _halves_of_heads(kv_cache, impl)
    tokens, size = kv_cache.shape[2], impl.head_size
    if tokens % 16 or size % 16:
        raise UnknownCacheForm(
            f"CPU_ATTN's amx cache with {tokens} tokens in a block and head size {size}, "
            "expected multiples of 16"
        )
    key = keys.unflatten(2, (tokens // 16, size // 2, 16, 2))
    return key, values.unflatten(2, (size // 16, tokens // 2, 16, 2))


def _halves_of_heads(kv_cache: torch.Tensor, impl: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of CPU_ATTN, each `[B, H, N * D]`: halves of a block's part for a head."""
    content = 2 * impl.head_size
    _check_logical(kv_cache, impl.num_kv_heads, content)
    if kv_cache.stride(3) != 1 or kv_cache.stride(2) != content:
        raise UnknownCacheForm(f"CPU_ATTN cache strides {kv_cache.stride()}: block not contiguous")
    keys, values = kv_cache.flatten(2).chunk(2, dim=2)
    return keys, values


def cpu_attn_form(builder: Any) -> CacheForm:
    """The form of CPU_ATTN, which packs keys and values for the instructions of its kernels."""
    forms = {"vec": CPU_ATTN, "vec16": CPU_ATTN, "amx": CPU_ATTN_AMX}
    if builder.isa not in forms:
        raise UnknownCacheForm(f"CPU_ATTN's {builder.isa} cache form is not readable")
    return forms[builder.isa]


def split_rocm_attn(kv_cache: torch.Tensor, impl: Any) -> Views:
    """Splits ROCM_ATTN: two head slots, keys `[B, H, D/x, N, x]`, values `[B, H, D, N]`.

    `PagedAttention.split_kv_cache` does the same; x is 16 bytes of elements.
    """
    key, value = _two_slots(kv_cache, impl)
    blocks, heads, size = key.shape[0], impl.num_kv_heads, impl.head_size
    x = 16 // key.element_size()
    return key.view(blocks, heads, size // x, -1, x), value.view(blocks, heads, size, -1)


def split_shuffled(kv_cache: torch.Tensor, impl: Any) -> Views:
    """Splits ROCM_AITER_FA's shuffled layout.

    It has two head slots, keys `[B, H, D/x, N, x]` and values `[B, H, N/x, D, x]`.
    """
    key, value = _two_slots(kv_cache, impl)
    blocks, block_size, heads, size = *key.shape[:2], impl.num_kv_heads, impl.head_size
    x = 16 // key.element_size()
    if block_size % x:
        raise UnknownCacheForm(
            f"shuffled cache with block size {block_size}, not a multiple of {x}"
        )
    key = key.view(blocks, heads, size // x, block_size, x)
    return key, value.view(blocks, heads, block_size // x, size, x)


def split_packed(kv_cache: torch.Tensor, impl: Any) -> Views:
    """Splits ROCM_AITER_FA, ROCM_AITER_UNIFIED_ATTN, TRITON_ATTN: `[B, H, N, 2D]`, any strides."""
    _check_logical(kv_cache, impl.num_kv_heads, 2 * impl.head_size)
    key, value = kv_cache.chunk(2, dim=3)
    return key, value


def rocm_aiter_fa_form(builder: Any) -> CacheForm:
    """The form of ROCM_AITER_FA by the parent's own switch.

    The shape does not tell: with two KV heads both forms have the same.
    """
    from vllm._aiter_ops import rocm_aiter_ops

    return SHUFFLED if rocm_aiter_ops.is_shuffle_kv_cache_enabled() else PACKED


def _check_logical(kv_cache: torch.Tensor, heads: int, content: int) -> None:
    """Checks the sizes of a logical `[B, H, N, C]` view."""
    if kv_cache.dim() != 4 or kv_cache.shape[1] != heads or kv_cache.shape[3] != content:
        raise UnknownCacheForm(
            f"cache of shape {tuple(kv_cache.shape)}, expected [blocks, {heads}, tokens, {content}]"
        )


def _two_slots(kv_cache: torch.Tensor, impl: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of a cache `[B, 2, N, H * D]`, each `[B, N, H * D]`."""
    _check_logical(kv_cache, 2, impl.num_kv_heads * impl.head_size)
    key, value = kv_cache.unbind(1)
    return key, value


CPU_ATTN = CacheForm(split_cpu_attn, ("B H D N", "B H N D"), fp8=False)
CPU_ATTN_AMX = CacheForm(split_cpu_attn_amx, ("B H N/x D/y x y", "B H D/y N/x y x"), fp8=False)
ROCM_ATTN = CacheForm(split_rocm_attn, ("B H D/x N x", "B H D N"))
SHUFFLED = CacheForm(split_shuffled, ("B H D/x N x", "B H N/x D x"), scales=shuffled_scales)
PACKED = CacheForm(split_packed, ("B H N D", "B H N D"))

FORMS: dict[str, FormOf] = {
    "CPU_ATTN": cpu_attn_form,
    "ROCM_ATTN": lambda builder: ROCM_ATTN,
    "ROCM_AITER_FA": rocm_aiter_fa_form,
    "ROCM_AITER_UNIFIED_ATTN": lambda builder: PACKED,
    "TRITON_ATTN": lambda builder: PACKED,
}
"""Functions that return the cache form of each parent that HK wraps, by its registry member."""
