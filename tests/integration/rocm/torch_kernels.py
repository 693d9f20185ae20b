"""Plain-torch stand-ins for the GPU kernels beneath vLLM's ROCm attention backends.

After `install()` the four backends of `vllm.v1.attention.backends` run on CPU tensors: their
own builders, metadata, cache specs, cache views and `forward`, only the kernels that these
call are the functions below. So each of them owns its real cache layout, as it does on a GPU.

    ROCM_ATTN                key [B, H, D/x, N, x], value [B, H, D, N]
    ROCM_AITER_FA            key, value [B, N, H, D]; shuffled: reinterpreted by pointer as
                             key [B, H, D/x, N, x], value [B, H, N/x, D, x]
    ROCM_AITER_UNIFIED_ATTN  key, value [B, N, H, D]
    TRITON_ATTN              key, value [B, N, H, D]

Nothing here uses hk_backend: what HK computes is compared with these.
"""

from __future__ import annotations

import math
import sys
import types
from typing import Any

import pytest
import torch

from tests.integration.rocm.rocm_platform import stub_module

FP8 = torch.float8_e4m3fn
"""What vLLM's CPU platform calls its FP8; a cache arrives as bytes or as this."""


def to_cache(tensor: torch.Tensor, cache: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """New keys or values as `cache` stores them."""
    if cache.dtype in (torch.uint8, FP8):
        return (tensor / scale).to(FP8).view(cache.dtype)
    return tensor


def from_cache(tensor: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """Stored keys or values as numbers."""
    if tensor.dtype is FP8:
        assert scale is not None
        return tensor.float() * scale.flatten()[0]
    return tensor


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One request: query `[n, heads, D]`, key and value `[s, kv_heads, D]`, last tokens aligned.

    Returns the output in float32 and the log-sum-exp `[heads, n]`.
    """
    group = query.shape[1] // key.shape[1]
    keys = key.float().repeat_interleave(group, dim=1)
    values = value.float().repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", query.float(), keys) * scale
    if causal:
        hidden = torch.ones(scores.shape[1:], dtype=torch.bool).triu(len(key) - len(query) + 1)
        scores = scores.masked_fill(hidden, -math.inf)
    output = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)
    return output, scores.logsumexp(-1)


def pages(cache: torch.Tensor, block_table: torch.Tensor, length: int) -> torch.Tensor:
    """The first `length` tokens of one request, from a cache `[B, N, H, D]`."""
    blocks = block_table[: -(-length // cache.shape[1])].long()
    return cache[blocks].flatten(0, 1)[:length]


def write_pages(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache_dtype: str,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
) -> None:
    """`reshape_and_cache_flash`: caches `[B, N, H, D]`."""
    token, block, offset = _places(slot_mapping, key_cache.shape[1])
    key_cache[block, offset] = to_cache(key[token], key_cache, k_scale)
    value_cache[block, offset] = to_cache(value[token], value_cache, v_scale)


def x_packed_as_pages(
    key_cache: torch.Tensor, value_cache: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies `[B, N, H, D]` of a cache K `[B, H, D/x, N, x]`, V `[B, H, D, N]`."""
    return key_cache.permute(0, 3, 1, 2, 4).flatten(3), value_cache.permute(0, 3, 1, 2)


# ---------------------------------------------------------------- ROCM_ATTN


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
    token, block, offset = _places(slot_mapping, key_cache.shape[3])
    packed = key[token].unflatten(-1, (-1, key_cache.shape[4]))
    key_cache[block, :, :, offset, :] = to_cache(packed, key_cache, k_scale)
    value_cache[block, :, :, offset] = to_cache(value[token], value_cache, v_scale)


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
    **_rest: object,
) -> None:
    """New tokens of a prefill row come from `key` and `value`, all others from the cache."""
    for row, (first, last) in enumerate(_rows(query_start_loc)):
        length = int(seq_lens[row])
        if last == first:
            continue
        blocks = block_table[row, : -(-length // value_cache.shape[3])].long()
        keys, values = (
            from_cache(side.flatten(0, 1)[:length], scale)
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
        output[first:last] = attend(query[first:last], keys, values, sm_scale, causal)[0]


# ---------------------------------------------------------------- TRITON_ATTN and unified


def unified_attention(
    *,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    seqused_k: torch.Tensor,
    softmax_scale: float,
    causal: bool,
    block_table: torch.Tensor,
    k_descale: torch.Tensor,
    v_descale: torch.Tensor,
    **_rest: object,
) -> None:
    """Every row reads all its keys from the cache, the new ones too."""
    for row, (first, last) in enumerate(_rows(cu_seqlens_q)):
        if last == first:
            continue
        length = int(seqused_k[row])
        keys = from_cache(pages(k, block_table[row], length), k_descale)
        values = from_cache(pages(v, block_table[row], length), v_descale)
        out[first:last] = attend(q[first:last], keys, values, softmax_scale, causal)[0]


def triton_reshape_and_cache_flash(
    key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, *rest: Any
) -> None:
    """Takes both forms, as the Triton kernel does: K of five axes is ROCM_ATTN's."""
    writer = write_x_packed if key_cache.dim() == 5 else write_pages
    writer(key, value, key_cache, *rest)


# ---------------------------------------------------------------- ROCM_AITER_FA


def flash_attn_varlen_func(
    *,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    softmax_scale: float,
    causal: bool,
    return_lse: bool = False,
    out: torch.Tensor | None = None,
    **_rest: object,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Packed keys and values; a request without keys gives zeros and minus infinity."""
    out = torch.empty_like(q) if out is None else out
    lse = torch.full((q.shape[1], q.shape[0]), -math.inf)
    for (first, last), (k0, k1) in zip(_rows(cu_seqlens_q), _rows(cu_seqlens_k), strict=True):
        if k1 == k0:
            out[first:last] = 0
            continue
        result = attend(q[first:last], k[k0:k1], v[k0:k1], softmax_scale, causal)
        out[first:last], lse[:, first:last] = result
    return (out, lse) if return_lse else out


def merge_attn_states(
    *,
    output: torch.Tensor,
    prefix_output: torch.Tensor,
    prefix_lse: torch.Tensor,
    suffix_output: torch.Tensor,
    suffix_lse: torch.Tensor,
    output_lse: torch.Tensor | None = None,
) -> None:
    total = torch.logaddexp(prefix_lse, suffix_lse)
    prefix, suffix = (torch.exp(x - total).T[:, :, None] for x in (prefix_lse, suffix_lse))
    output.copy_(prefix * prefix_output.float() + suffix * suffix_output.float())
    if output_lse is not None:
        output_lse.copy_(total)


def shuffled(
    key_cache: torch.Tensor, value_cache: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The memory of `[B, N, H, D]` views, read as K `[B, H, D/x, N, x]`, V `[B, H, N/x, D, x]`.

    Only the pointer and the block stride count, as in `reshape_and_cache_shuffle_kernel`.
    """
    blocks, tokens, heads, channels = key_cache.shape
    x = 16 // key_cache.element_size()

    def view(cache: torch.Tensor, shape: tuple[int, int, int, int]) -> torch.Tensor:
        outer, middle, inner = shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3]
        strides = (cache.stride(0), outer, middle, inner, 1)
        return torch.as_strided(cache, (blocks, heads, *shape[1:]), strides)

    return (
        view(key_cache, (heads, channels // x, tokens, x)),
        view(value_cache, (heads, tokens // x, channels, x)),
    )


def shuffled_as_pages(
    key_cache: torch.Tensor, value_cache: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies `[B, N, H, D]` of a cache K `[B, H, D/x, N, x]`, V `[B, H, N/x, D, x]`."""
    keys = key_cache.permute(0, 3, 1, 2, 4).flatten(3)
    return keys, value_cache.permute(0, 2, 4, 1, 3).flatten(1, 2)


def reshape_and_cache_shuffle_triton(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *_ignored_scales: object,
) -> None:
    """The kernel's own scales are the constant 1, whatever the layer's are."""
    keys, values = shuffled(key_cache, value_cache)
    token, block, offset = _places(slot_mapping, key_cache.shape[1])
    x, one = keys.shape[4], torch.ones(1)
    packed = key[token].unflatten(-1, (-1, x))
    keys[block, :, :, offset, :] = to_cache(packed, keys, one)
    values[block, :, offset // x, :, offset % x] = to_cache(value[token], values, one)


def cp_mha_gather_cache(
    *,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    block_tables: torch.Tensor,
    cu_seqlens_kv: torch.Tensor,
    seq_starts: torch.Tensor,
    kv_cache_layout: str,
    k_scales: torch.Tensor,
    v_scales: torch.Tensor,
    **_rest: object,
) -> None:
    """Copy tokens `seq_starts[i]` on of each request's cache into packed `key` and `value`."""
    if kv_cache_layout == "SHUFFLE":
        key_cache, value_cache = shuffled_as_pages(*shuffled(key_cache, value_cache))
        k_scales = v_scales = torch.ones(1)
    for row, (first, last) in enumerate(_rows(cu_seqlens_kv)):
        start = int(seq_starts[row])
        end = start + last - first
        keys, values = (pages(c, block_tables[row], end)[start:] for c in (key_cache, value_cache))
        key[first:last] = from_cache(keys, k_scales)
        value[first:last] = from_cache(values, v_scales)


def paged_attention_v1(
    out: torch.Tensor,
    workspace_buffer: torch.Tensor,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    scale: float,
    block_tables: torch.Tensor,
    cu_query_lens: torch.Tensor,
    context_lens: torch.Tensor,
    max_context_len: int,
    alibi_slopes: torch.Tensor | None,
    kv_cache_dtype: str,
    kv_cache_layout: str,
    logits_soft_cap: float,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
    *_rest: object,
) -> None:
    """Decode rows of one token over caches `[B, N, H, D]`."""
    assert kv_cache_layout == "NHD"
    _decode(out, query, key_cache, value_cache, block_tables, context_lens, scale, k_scale, v_scale)


def paged_attention_common(
    *,
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
    K_QScale_hip: torch.Tensor,
    V_QScale_hip: torch.Tensor,
    out_: torch.Tensor,
    **_rest: object,
) -> None:
    """Decode rows of one token over the shuffled cache."""
    sides = shuffled_as_pages(K, V)
    _decode(out_, Q, *sides, block_tables, context_lens, scale, K_QScale_hip, V_QScale_hip)


def _decode(
    out: torch.Tensor,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
) -> None:
    for row in range(len(query)):
        length = int(context_lens[row])
        keys = from_cache(pages(key_cache, block_tables[row], length), k_scale)
        values = from_cache(pages(value_cache, block_tables[row], length), v_scale)
        out[row] = attend(query[row : row + 1], keys, values, scale, causal=True)[0][0]


def _places(
    slot_mapping: torch.Tensor, block_size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """New token, its block, its place there; a negative slot is padding and left out."""
    token = (slot_mapping >= 0).nonzero().flatten()
    slots = slot_mapping[token].long()
    return token, slots // block_size, slots % block_size


def _rows(start_loc: torch.Tensor) -> list[tuple[int, int]]:
    starts = start_loc.tolist()
    return list(zip(starts[:-1], starts[1:], strict=True))


# ---------------------------------------------------------------- install


class _Namespace(types.SimpleNamespace):
    """A module with some names replaced; every other one is the module's own."""

    def __init__(self, module: object, **replaced: object) -> None:
        super().__init__(**replaced)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _zeros(*args: Any, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
    """`torch.zeros` where no allocator of pinned memory exists."""
    return torch.zeros(*args, **kwargs)


def install(patch: pytest.MonkeyPatch | None = None) -> None:
    """Put the functions above in the place of AITER's, Triton's and HIP's kernels.

    For the rest of this process, or for as long as `patch` lasts.
    """
    patch = patch or pytest.MonkeyPatch()
    modules = {
        "aiter": {
            "flash_attn_varlen_func": flash_attn_varlen_func,
            "paged_attention_common": paged_attention_common,
        },
        "aiter.ops": {},
        "aiter.ops.triton": {},
        "aiter.ops.triton.unified_attention": {"unified_attention": unified_attention},
        # the unified backend asks for the GPU's generation; the real module needs a driver
        "vllm.platforms.rocm": {"on_gfx11": lambda: False},
    }
    for name, contents in modules.items():
        patch.setitem(sys.modules, name, stub_module(name, **contents))

    from vllm.v1.attention.backends import (
        rocm_aiter_fa,
        rocm_aiter_unified_attn,
        rocm_attn,
        triton_attn,
    )

    for module, kernel in (
        (rocm_attn, chunked_prefill_paged_decode),
        (rocm_attn, triton_reshape_and_cache_flash),
        (triton_attn, unified_attention),
        (triton_attn, triton_reshape_and_cache_flash),
        (rocm_aiter_fa, merge_attn_states),
        (rocm_aiter_fa, cp_mha_gather_cache),
        (rocm_aiter_fa, reshape_and_cache_shuffle_triton),
    ):
        patch.setattr(module, kernel.__name__, kernel, raising=False)
    patch.setattr(rocm_attn.PagedAttention, "write_to_paged_cache", staticmethod(write_x_packed))
    operators = _Namespace(rocm_aiter_unified_attn.ops, reshape_and_cache_flash=write_pages)
    patch.setattr(rocm_aiter_unified_attn, "ops", operators)
    kernels = types.SimpleNamespace(
        aiter=types.SimpleNamespace(paged_attention_v1=paged_attention_v1),
        _C_cache_ops=types.SimpleNamespace(reshape_and_cache_flash=write_pages),
    )
    patch.setattr(rocm_aiter_fa, "torch", _Namespace(torch, ops=kernels, zeros=_zeros))
