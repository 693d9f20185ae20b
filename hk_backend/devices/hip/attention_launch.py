"""The launch of an attention call: the kernels' argument struct, from host facts alone.

The struct is csrc/include/hk/args/attention_prefill.hpp, with which that of decode begins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from hk_backend.devices.hip.attention_family import DECODE, kernels_of
from hk_backend.devices.hip.cache_form import cache_arguments
from hk_backend.devices.hip.call import KernelCall, Work, bad
from hk_backend.kernels import Catalogue, Family
from hk_backend.kernels.masks import ALL_KEYS, GROUPED
from hk_backend.kernels.row_sources import PAGED, SPLIT, group_arguments
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.paged_kv import PagedKV

ALIGNMENT = 16
"""Alignment of every row in bytes, as the kernels read and write 16 at once."""
ROW_ELEMENTS = 2**26
"""Exclusive bound of the elements between tokens, so that a tile's byte offsets fit 32 bits."""
WAVE_TOKENS, WAVE_BYTES = 31, 2**32 - 2**12
"""Tokens from the first to the last row of a wave, and most bytes between these rows."""
LARGEST_DIVIDED = 2**31
"""Exclusive bound of a step's rows times the query heads per KV head (hk/types/divisor.hpp)."""
MOST_TILES = MOST_REQUESTS = 2**15
"""Most full tiles of query rows, and most requests, each of which may add one tile.

The second and third dimension of a grid are below 2^16.
"""
LARGEST_SCALE = 2.0**127
"""Largest absolute `scale` of the scores: times log2(e) it must be a float32 in the kernels."""
SMALLEST_BIASED_SCALE = 2.0**-64
"""Smallest absolute `scale` with ALiBi, unless it is 0.

The kernels divide the slopes by `scale`, and the result must be a float32.
"""
BLOCK_BYTES = 2**32 - 2**12
"""Exclusive bound of the bytes from one block of a cache to the next."""
KEYS_TIMES_BLOCK = 2**38
"""Exclusive bound of a request's keys times the tokens of a block (hk/types/row_source.hpp)."""
ROWS = "rows of attention (tokens times heads)"


def prepare(of: AttentionArguments, kernels: Catalogue) -> KernelCall:
    """Prepares the launch of one call, whose arguments the operator has checked.

    Raises:
        ValueError: the kernels do not compute this case, or cannot read a layout. Names the
            argument, its value and what would be valid.
    """
    found = kernels_of(of, kernels)
    query, out, lse = of.query, of.out, of.lse
    key, value = of.stored()
    tokens, heads, head_size = query.shape
    tensors = {"query": query, "key": key, "value": value, "out": out}
    numbers: dict[str, float] = {}
    if of.paged_kv is not None:
        _add_paged(of, of.paged_kv, str(found[0].facts["keys"]), tensors, numbers)
    else:
        _add_packed(of, tensors, numbers)
    for name, tensor in (("query", query), ("out", out)):
        numbers |= _packed_strides(name, tensor)
    channels = {"query": head_size, "key": head_size, "value": of.value_size, "out": of.value_size}
    in_rows = {"query", "out"} if found[0].facts["keys"] == SPLIT else set(tensors)
    for name, stride in numbers.items():
        _check_stride(name, int(stride), tensors, in_rows, channels)
    for name in ("query", "key", "value", "out"):
        address = tensors[name].data_ptr()
        if address % ALIGNMENT:
            bad(name, f"address {address:#x}", f"a multiple of {ALIGNMENT} bytes")
    scale, value_factor, k_scale, v_scale = of.factors()
    if abs(scale) > LARGEST_SCALE:
        bad("scale", f"{scale:g}", f"at most {LARGEST_SCALE:g} in size")
    if of.alibi_slopes is not None and 0 < abs(scale) < SMALLEST_BIASED_SCALE:
        bad("scale", f"{scale:g} with alibi_slopes", f"{SMALLEST_BIASED_SCALE:g} or more in size")
    for name, of_heads in (("key_scale", k_scale), ("value_scale", v_scale)):
        numbers[f"{name}_head"] = 0
        if of_heads is not None:
            tensors[name] = of_heads
            numbers[f"{name}_head"] = of_heads.stride(0) if of_heads.shape[0] > 1 else 0
    tensors["query_start_loc"] = of.query_start_loc.contiguous()
    if lse is not None:
        tensors["lse"] = lse
    for name, of_each_head in (("sinks", of.sinks), ("alibi_slopes", of.alibi_slopes)):
        if of_each_head is not None:
            tensors[name] = of_each_head.contiguous()
    cache = of.paged_kv
    numbers |= {
        "lse_head": 0 if lse is None else lse.stride(0),
        "lse_token": 1 if lse is None else lse.stride(1),
        "num_blocks": 0 if cache is None else cache.num_blocks,
        "block_size": 0 if cache is None else cache.block_size,
        "causal": int(of.causal),
        "head_size": head_size,
        "value_size": of.value_size,
        "window": min(of.sliding_window or ALL_KEYS, ALL_KEYS),
        "scale": scale,
        "value_factor": value_factor,
        "parts": 1,
        "part_keys": 0,
        "out_part": 0,
        "lse_part": 0,
        "soft_cap": of.logits_soft_cap or 0.0,
    }
    kv_heads = key.shape[1] if cache is None else cache.num_kv_heads
    group = group_arguments(heads, kv_heads)
    numbers["group_reciprocal"] = group["group_reciprocal"]
    sizes = {
        "num_requests": of.query_start_loc.shape[0] - 1,
        "num_tokens": tokens,
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "group": group["group"],
    }
    if _is_grouped(found):
        _check_groups(sizes["group"], tensors, numbers)
    for name, number, most in (
        ("query", tokens, most_tokens(found, sizes["group"])),
        ("query_start_loc", sizes["num_requests"], MOST_REQUESTS),
    ):
        if number > most:
            bad(name, f"a length of {number}", f"at most {most}")
    return KernelCall(found, tensors, numbers | sizes, sizes, Work(tokens * heads, ROWS))


def _add_paged(
    of: AttentionArguments,
    cache: PagedKV,
    keys: str,
    tensors: dict[str, torch.Tensor],
    numbers: dict[str, float],
) -> None:
    """Adds the arguments for the places of keys and values in a cache."""
    assert of.block_table is not None
    assert of.seq_lens is not None
    block_table = of.block_table
    if block_table.shape[1] > 1 and block_table.stride(1) != 1:
        block_table = block_table.contiguous()
    tensors |= {"seq_lens": of.seq_lens.contiguous(), "block_table": block_table}
    numbers["block_table_row"] = block_table.stride(0)
    width, block_size = block_table.shape[1], cache.block_size
    if keys in (PAGED, SPLIT) and width * block_size**2 >= KEYS_TIMES_BLOCK:
        valid = f"fewer than {-(-KEYS_TIMES_BLOCK // block_size**2)}"
        bad("block_table", f"a row of {width} blocks of {block_size} tokens", valid)
    numbers |= cache_arguments(cache, keys)


def _add_packed(
    of: AttentionArguments, tensors: dict[str, torch.Tensor], numbers: dict[str, float]
) -> None:
    """Adds the arguments for the places of packed keys and values."""
    starts = of.query_start_loc if of.key_start_loc is None else of.key_start_loc
    tensors["key_start_loc"] = starts.contiguous()
    apart = ("key_block", "value_block", "key_piece", "value_piece", "block_table_row")
    numbers |= dict.fromkeys((*apart, "block_rows", "block_reciprocal"), 0)
    for name in ("key", "value"):
        numbers |= _packed_strides(name, tensors[name])


def _packed_strides(name: str, tensor: torch.Tensor) -> dict[str, int]:
    token, head, channel = tensor.stride()
    tokens, heads, head_size = tensor.shape
    if channel != 1:
        bad(name, f"channel stride {channel}", "1: the kernels read a head's channels at once")
    # torch allows any stride for an axis of one element
    return {
        f"{name}_token": token if tokens > 1 else heads * head_size,
        f"{name}_head": head if heads > 1 else head_size,
    }


def _check_stride(
    name: str,
    stride: int,
    tensors: Mapping[str, torch.Tensor],
    in_rows: Collection[str],
    channels: Mapping[str, int],
) -> None:
    tensor, _, axis = name.partition("_")
    if name.startswith("block_") or (axis in ("token", "piece") and tensor not in in_rows):
        return
    element = tensors[tensor].element_size()
    if stride * element % ALIGNMENT:
        bad(name, f"a stride of {stride} elements", f"a multiple of {ALIGNMENT // element}")
    if name.endswith("_token") and not channels[tensor] <= stride < ROW_ELEMENTS:
        valid = f"at least {channels[tensor]}, below {ROW_ELEMENTS}"
        bad(name, f"a stride of {stride} elements", valid)
    if name.endswith("_block") and not 0 <= stride * element < BLOCK_BYTES:
        bad(name, f"a stride of {stride} elements", f"0 to {BLOCK_BYTES // element - 1}")


def most_tokens(kernels: Family, group: int) -> int:
    """Most query tokens of a step."""
    rows = MOST_TILES * min(kernel.tile.rows for kernel in kernels)
    if not _is_grouped(kernels):
        return rows
    return min(rows // group, (LARGEST_DIVIDED - 1) // group**2)


def _is_grouped(kernels: Family) -> bool:
    """Whether a tile has the rows of all query heads of a KV head."""
    return kernels[0].operator == DECODE or kernels[0].facts.get("mask") in GROUPED


def _check_groups(
    group: int, tensors: Mapping[str, torch.Tensor], numbers: Mapping[str, float]
) -> None:
    """Checks the strides of kernels whose tiles have the rows of several heads."""
    for name in ("query", "out", "lse"):
        if name in tensors:
            head, token = (int(numbers[f"{name}_{axis}"]) for axis in ("head", "token"))
            elements = WAVE_BYTES // tensors[name].element_size()
            if WAVE_TOKENS * token + group * head > elements:
                valid = (elements - WAVE_TOKENS * token) // group
                bad(f"{name}_head", f"a stride of {head} elements", f"at most {valid}")
