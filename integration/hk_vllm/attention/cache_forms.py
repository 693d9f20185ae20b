"""How each parent stores keys and values: from the tensor that vLLM hands a layer to `PagedKV`.

Nothing is copied and nothing is re-laid: a form only names the axes that the parent's own
kernels see. From vLLM 0.29 on a layer is handed a logical view `[B, H, N, C]`: blocks, head
slots, tokens of a block, content (`C` is `2 * head_size` unless the backend customises it).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hk_backend.engine.cache_proof import UnknownCacheForm
from hk_backend.ops import PagedKV

Layouts = tuple[str, str]
Scales = tuple[torch.Tensor | float, torch.Tensor | float]

READABLE_CPU_ISAS = ("vec", "vec16")


def layer_scales(layer: Any) -> Scales:
    """The layer's own, of the whole cache or of each head. A prepared launch keeps their memory."""
    return layer._k_scale.view(-1), layer._v_scale.view(-1)


def rocm_aiter_fa_scales(layer: Any) -> Scales:
    """Shuffled: 1, a constant of the kernels that write and gather, whatever the layer's are."""
    from vllm._aiter_ops import rocm_aiter_ops

    if not rocm_aiter_ops.is_shuffle_kv_cache_enabled():
        return layer_scales(layer)
    return 1.0, 1.0


@dataclass(frozen=True)
class CacheForm:
    """One parent's way to store a cache.

    `read(kv_cache, impl)` describes a layer's cache; `refusal(builder)` says, once the parent's
    builder exists, why HK cannot read it (empty: it can). `fp8`: an FP8 cache has the same form.
    `layouts()`: the layout strings of keys and values, as `read` will name them.
    `scales(layer)`: what the parent's kernels multiply an FP8 cache's keys and values by.
    """

    read: Callable[[torch.Tensor, Any], PagedKV]
    layouts: Callable[[], Layouts]
    refusal: Callable[[Any], str] = lambda builder: ""
    fp8: bool = True
    scales: Callable[[Any], Scales] = layer_scales


CPU_ATTN_LAYOUTS = ("B H D N", "B H N D")
ROCM_ATTN_LAYOUTS = ("B H D/x N x", "B H D N")
SHUFFLED_LAYOUTS = ("B H D/x N x", "B H N/x D x")
PACKED_LAYOUTS = ("B H N D", "B H N D")  # the halves of "B H N 2D"


def rocm_aiter_fa_layouts() -> Layouts:
    from vllm._aiter_ops import rocm_aiter_ops

    return SHUFFLED_LAYOUTS if rocm_aiter_ops.is_shuffle_kv_cache_enabled() else PACKED_LAYOUTS


def read_cpu_attn(kv_cache: torch.Tensor, impl: Any) -> PagedKV:
    """CPU_ATTN, `vec` and `vec16`: per block and head keys `[D, N]`, then values `[N, D]`."""
    blocks, heads, block_size, content = _logical(kv_cache, impl.num_kv_heads, 2 * impl.head_size)
    if kv_cache.stride(3) != 1 or kv_cache.stride(2) != content:
        raise UnknownCacheForm(f"CPU_ATTN cache strides {kv_cache.stride()}: block not contiguous")
    block, head = kv_cache.stride(0), kv_cache.stride(1)
    size = impl.head_size
    start = kv_cache.storage_offset()
    key = kv_cache.as_strided(
        (blocks, heads, size, block_size), (block, head, block_size, 1), start
    )
    value = kv_cache.as_strided(
        (blocks, heads, block_size, size), (block, head, size, 1), start + block_size * size
    )
    return PagedKV.from_views(key, CPU_ATTN_LAYOUTS[0], value, CPU_ATTN_LAYOUTS[1])


def refuse_cpu_isa(builder: Any) -> str:
    """CPU_ATTN packs keys for AMX (and for other machines' vectors) in forms HK cannot read."""
    isa = builder.isa
    return "" if isa in READABLE_CPU_ISAS else f"CPU_ATTN's {isa} cache form is not readable"


def read_rocm_attn(kv_cache: torch.Tensor, impl: Any) -> PagedKV:
    """ROCM_ATTN: two head slots, keys `[B, H, D/x, N, x]`, values `[B, H, D, N]`.

    As `PagedAttention.split_kv_cache`: x is 16 bytes of elements.
    """
    key, value = _two_slots(kv_cache, impl)
    blocks, heads, size = key.shape[0], impl.num_kv_heads, impl.head_size
    x = 16 // key.element_size()
    key = key.view(blocks, heads, size // x, -1, x)
    value = value.view(blocks, heads, size, -1)
    return PagedKV.from_views(key, ROCM_ATTN_LAYOUTS[0], value, ROCM_ATTN_LAYOUTS[1])


def read_rocm_aiter_fa(kv_cache: torch.Tensor, impl: Any) -> PagedKV:
    """ROCM_AITER_FA: `[B, H, N, 2D]`, or with the shuffled layout two head slots.

    Shuffled: keys `[B, H, D/x, N, x]`, values `[B, H, N/x, D, x]`.
    """
    from vllm._aiter_ops import rocm_aiter_ops

    # the parent's own switch: with two KV heads both forms have the same shape
    if not rocm_aiter_ops.is_shuffle_kv_cache_enabled():
        return read_packed(kv_cache, impl)
    key, value = _two_slots(kv_cache, impl)
    blocks, block_size, heads, size = *key.shape[:2], impl.num_kv_heads, impl.head_size
    x = 16 // key.element_size()
    if block_size % x:
        raise UnknownCacheForm(
            f"shuffled cache with block size {block_size}, not a multiple of {x}"
        )
    key = key.view(blocks, heads, size // x, block_size, x)
    value = value.view(blocks, heads, block_size // x, size, x)
    return PagedKV.from_views(key, SHUFFLED_LAYOUTS[0], value, SHUFFLED_LAYOUTS[1])


def read_packed(kv_cache: torch.Tensor, impl: Any) -> PagedKV:
    """ROCM_AITER_UNIFIED_ATTN, TRITON_ATTN: `[B, H, N, 2D]`, any strides."""
    _logical(kv_cache, impl.num_kv_heads, 2 * impl.head_size)
    return PagedKV.from_packed(kv_cache)


def _logical(kv_cache: torch.Tensor, heads: int, content: int) -> tuple[int, int, int, int]:
    """The sizes of a logical `[B, H, N, C]` view, checked."""
    if kv_cache.dim() != 4 or kv_cache.shape[1] != heads or kv_cache.shape[3] != content:
        raise UnknownCacheForm(
            f"cache of shape {tuple(kv_cache.shape)}, expected [blocks, {heads}, tokens, {content}]"
        )
    blocks, heads, tokens, content = kv_cache.shape
    return blocks, heads, tokens, content


def _two_slots(kv_cache: torch.Tensor, impl: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of a cache `[B, 2, N, H * D]`, each `[B, N, H * D]`."""
    _logical(kv_cache, 2, impl.num_kv_heads * impl.head_size)
    key, value = kv_cache.unbind(1)
    return key, value


FORMS = {
    "CPU_ATTN": CacheForm(read_cpu_attn, lambda: CPU_ATTN_LAYOUTS, refuse_cpu_isa, fp8=False),
    "ROCM_ATTN": CacheForm(read_rocm_attn, lambda: ROCM_ATTN_LAYOUTS),
    "ROCM_AITER_FA": CacheForm(
        read_rocm_aiter_fa, rocm_aiter_fa_layouts, scales=rocm_aiter_fa_scales
    ),
    "ROCM_AITER_UNIFIED_ATTN": CacheForm(read_packed, lambda: PACKED_LAYOUTS),
    "TRITON_ATTN": CacheForm(read_packed, lambda: PACKED_LAYOUTS),
}
"""The parents that HK wraps, by the name of their registry member."""
