"""Plain-torch stand-ins for compiled GPU kernels beneath vLLM's ROCm attention backends.

After `install()` the four backends of `vllm.v1.attention.backends` run on CPU tensors. Builders,
metadata, cache specs, cache views and `forward` are their own, and so are ROCM_ATTN's and
TRITON_ATTN's Triton kernels (triton_kernels.py). AITER's and HIP's kernels are this module's
functions, and the Triton kernels that vLLM defines only on ROCm. So each backend owns its real
cache layout, as it does on a GPU:

    ROCM_ATTN                key [B, H, D/x, N, x], value [B, H, D, N], x = 16 bytes.
    ROCM_AITER_FA            key, value [B, N, H, D]; shuffled: reinterpreted by pointer as
                             key [B, H, D/x, N, x], value [B, H, N/x, D, x].
    ROCM_AITER_UNIFIED_ATTN  key, value [B, N, H, D].
    TRITON_ATTN              key, value [B, N, H, D].

Nothing here uses hk_backend, because HK's results are compared with these. Kernels take what they
need of their arguments by name, and leave the `rest`.
"""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.float8 import saturated
from tests.integration.hk_vllm.rocm import triton_kernels
from tests.integration.hk_vllm.rocm.rocm_platform import stub_module
from tests.integration.shared.attention.torch_kernels import (
    attend,
    numbers,
    pages,
    rows,
    shuffled_as_pages,
    unified_attention,
)

FP8 = torch.float8_e4m3fn
"""The FP8 type of vLLM's CPU platform. A cache arrives in this type, or as bytes."""
WRITTEN = ("auto", "float32", "float16", "bfloat16", "fp8", "fp8_e4m3")
T = torch.Tensor


def install(patch: pytest.MonkeyPatch | None = None) -> None:
    """Put the functions below in the place of AITER's and HIP's kernels, and Triton on a GPU.

    They stay for the rest of this process, or for as long as `patch` lasts.
    """
    from vllm.v1.attention.backends import (
        rocm_aiter_fa,
        rocm_aiter_unified_attn,
        rocm_attn,
    )

    patch = patch or pytest.MonkeyPatch()
    triton_kernels.install(patch)
    modules: dict[str, dict[str, Any]] = {
        "aiter": {
            "flash_attn_varlen_func": flash_attn_varlen_func,
            "paged_attention_common": paged_attention_common,
        },
        "aiter.ops": {},
        "aiter.ops.triton": {},
        "aiter.ops.triton.unified_attention": {"unified_attention": unified_attention},
        # backends ask for the GPU's generation, and for a kernel of HIP's that decodes in place of
        # Triton's; the real module needs a driver
        "vllm.platforms.rocm": {
            "on_gfx11": lambda: False,
            "use_rocm_custom_paged_attention": lambda *_, **__: False,
        },
    }
    for name, contents in modules.items():
        patch.setitem(sys.modules, name, stub_module(name, **contents))
    for module, kernel in (
        (rocm_aiter_fa, merge_attn_states),
        (rocm_aiter_fa, cp_mha_gather_cache),
        (rocm_aiter_fa, reshape_and_cache_shuffle_triton),
    ):
        patch.setattr(module, kernel.__name__, kernel, raising=False)
    write_rows, write_packed = compiled(write_pages), staticmethod(compiled(write_x_packed))
    patch.setattr(rocm_attn.PagedAttention, "write_to_paged_cache", write_packed)
    operators = _Namespace(rocm_aiter_unified_attn.ops, reshape_and_cache_flash=write_rows)
    patch.setattr(rocm_aiter_unified_attn, "ops", operators)
    kernels = types.SimpleNamespace(
        aiter=types.SimpleNamespace(paged_attention_v1=paged_attention_v1),
        _C_cache_ops=types.SimpleNamespace(reshape_and_cache_flash=write_rows),
    )
    patch.setattr(rocm_aiter_fa, "torch", _Namespace(torch, ops=kernels, zeros=_zeros))


class _Namespace(types.SimpleNamespace):
    """A module with some names replaced; every other one is the module's own."""

    def __init__(self, module: object, **replaced: object) -> None:
        super().__init__(**replaced)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _zeros(*args: Any, pin_memory: bool = False, **kwargs: Any) -> T:
    """`torch.zeros` where no allocator of pinned memory exists."""
    return torch.zeros(*args, **kwargs)


def compiled(write: Callable[..., None]) -> Callable[..., None]:
    """`write` as one of vLLM's own C++ functions, which on ROCm refuse e5m2.

    `DISPATCH_BY_KV_CACHE_DTYPE` in csrc/quantization/w8a8/fp8/amd/quant_utils.cuh refuses it.
    """

    def checked(*tensors_and_dtype: Any) -> None:
        dtype = tensors_and_dtype[5]
        if dtype not in WRITTEN:
            raise RuntimeError(f"Unsupported data type of kv cache: {dtype}")
        write(*tensors_and_dtype)

    return checked


# -- writers


def to_cache(tensor: T, cache: T, scale: T) -> T:
    """New keys or values as `cache` stores them."""
    if cache.dtype in (torch.uint8, FP8):
        return saturated(tensor / scale, FP8).view(cache.dtype)
    return tensor


def places(slot_mapping: T, block_size: int) -> tuple[T, T, T]:
    """Each new token, its block, its place there; a negative slot is padding and left out."""
    token = (slot_mapping >= 0).nonzero().flatten()
    slots = slot_mapping[token].long()
    return token, slots // block_size, slots % block_size


def write_pages(key: T, value: T, keys: T, values: T, slots: T, dtype: str, *scales: T) -> None:
    """`reshape_and_cache_flash`: caches `[B, N, H, D]`."""
    token, block, offset = places(slots, keys.shape[1])
    keys[block, offset] = to_cache(key[token], keys, scales[0])
    values[block, offset] = to_cache(value[token], values, scales[1])


def write_x_packed(key: T, value: T, keys: T, values: T, slots: T, dtype: str, *scales: T) -> None:
    """`reshape_and_cache`: K `[B, H, D/x, N, x]`, V `[B, H, D, N]`."""
    token, block, offset = places(slots, keys.shape[3])
    packed = key[token].unflatten(-1, (-1, keys.shape[4]))
    keys[block, :, :, offset, :] = to_cache(packed, keys, scales[0])
    values[block, :, :, offset] = to_cache(value[token], values, scales[1])


def shuffled(key_cache: T, value_cache: T) -> tuple[T, T]:
    """The memory of `[B, N, H, D]` views, read as K `[B, H, D/x, N, x]`, V `[B, H, N/x, D, x]`.

    Only the pointer and the block stride count, as in `reshape_and_cache_shuffle_kernel`.
    """
    blocks, tokens, heads, channels = key_cache.shape
    x = 16 // key_cache.element_size()

    def view(cache: T, shape: tuple[int, int, int, int]) -> T:
        outer, middle, inner = shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3]
        strides = (cache.stride(0), outer, middle, inner, 1)
        return torch.as_strided(cache, (blocks, heads, *shape[1:]), strides)

    return (
        view(key_cache, (heads, channels // x, tokens, x)),
        view(value_cache, (heads, tokens // x, channels, x)),
    )


def reshape_and_cache_shuffle_triton(
    key: T, value: T, key_cache: T, value_cache: T, slot_mapping: T, *_ignored_scales: object
) -> None:
    """Write the shuffled form with scales of 1, whatever the layer's are, as the kernel does."""
    keys, values = shuffled(key_cache, value_cache)
    token, block, offset = places(slot_mapping, key_cache.shape[1])
    x, one = keys.shape[4], torch.ones(1)
    packed = key[token].unflatten(-1, (-1, x))
    keys[block, :, :, offset, :] = to_cache(packed, keys, one)
    values[block, :, offset // x, :, offset % x] = to_cache(value[token], values, one)


# -- attention of ROCM_AITER_FA: packed prefill, decode over either form of its cache


def flash_attn_varlen_func(
    q: T, k: T, v: T, out: T | None = None, return_lse: bool = False, **rest: Any
) -> T | tuple[T, T]:
    """Prefill of packed keys and values; a request without keys gives zeros and minus infinity."""
    out = torch.empty_like(q) if out is None else out
    lse = torch.full((q.shape[1], q.shape[0]), -math.inf)
    window = rest.get("window_size", (-1, -1))[0] + 1
    mask = {"causal": rest["causal"], "window": window, "sinks": rest.get("sink_ptr")}
    starts = rows(rest["cu_seqlens_q"]), rows(rest["cu_seqlens_k"])
    for (first, last), (k0, k1) in zip(*starts, strict=True):
        if k1 == k0:
            out[first:last] = 0
            continue
        part = q[first:last], k[k0:k1], v[k0:k1]
        out[first:last], lse[:, first:last] = attend(*part, rest["softmax_scale"], **mask)
    return (out, lse) if return_lse else out


def merge_attn_states(
    output: T,
    prefix_output: T,
    prefix_lse: T,
    suffix_output: T,
    suffix_lse: T,
    output_lse: T | None = None,
) -> None:
    total = torch.logaddexp(prefix_lse, suffix_lse)
    prefix, suffix = (torch.exp(x - total).T[:, :, None] for x in (prefix_lse, suffix_lse))
    output.copy_(prefix * prefix_output.float() + suffix * suffix_output.float())
    if output_lse is not None:
        output_lse.copy_(total)


def cp_mha_gather_cache(key_cache: T, value_cache: T, key: T, value: T, **rest: Any) -> None:
    """Copy each request's cached tokens from `seq_starts[i]` on into packed `key` and `value`."""
    scales = rest["k_scales"], rest["v_scales"]
    if rest["kv_cache_layout"] == "SHUFFLE":
        key_cache, value_cache = shuffled_as_pages(*shuffled(key_cache, value_cache))
        scales = torch.ones(1), torch.ones(1)
    for row, (first, last) in enumerate(rows(rest["cu_seqlens_kv"])):
        start = int(rest["seq_starts"][row])
        end = start + last - first
        for packed, cache, scale in zip(
            (key, value), (key_cache, value_cache), scales, strict=True
        ):
            cached = pages(cache, rest["block_tables"][row], end)[start:]
            packed[first:last] = numbers(cached, scale)


def paged_attention_v1(
    out: T, workspace: T, query: T, key_cache: T, value_cache: T, scale: float, *rest: Any
) -> None:
    """Decode of rows with one token over caches `[B, N, H, D]`."""
    tables, _cu_query_lens, lengths, _longest, _slopes, _dtype, layout, _cap, *scales = rest[:10]
    assert layout == "NHD"
    _decode(out, query, (key_cache, value_cache), tables, lengths, scale, scales)


def paged_attention_common(
    *, Q: T, K: T, V: T, block_tables: T, context_lens: T, scale: float, out_: T, **rest: Any
) -> None:
    """Decode of rows with one token over the shuffled cache."""
    scales = [rest[f"{side}_QScale_hip"] for side in "KV"]
    _decode(out_, Q, shuffled_as_pages(K, V), block_tables, context_lens, scale, scales)


def _decode(
    out: T,
    query: T,
    caches: tuple[T, T],
    block_tables: T,
    lengths: T,
    scale: float,
    scales: list[T],
) -> None:
    for row, length in enumerate(lengths[: len(query)].tolist()):
        keys, values = (
            numbers(pages(cache, block_tables[row], length), descale)
            for cache, descale in zip(caches, scales, strict=True)
        )
        out[row] = attend(query[row : row + 1], keys, values, scale)[0][0]
