"""From the operator's arguments to those of an `attention_prefill` GPU kernel.

The kernels, by name: `attention_prefill_<dtype>_d<head size>_<packed|paged>`; their argument:
csrc/include/hk/args/attention_prefill.hpp. Only host facts are read here: shapes, strides, dtypes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import torch

from hk_backend.kernels import Catalogue
from hk_backend.terms.requests import AttentionRequest
from hk_backend.terms.verdict import SERVED, Verdict, refused

DTYPES = {torch.bfloat16: "bf16", torch.float16: "f16"}
BLOCK_TOKENS = 16
"""Tokens of a paged block: a multiple of this."""
ALIGNMENT = 16
"""Of every row, in bytes: the kernels read and write 16 at once."""
ROW_ELEMENTS = 2**26
"""Elements from one token to the next: fewer, so that a tile's byte offsets fit 32 bits."""
LARGEST_SCALE = 2.0**20
"""Of the scores, in size: the kernels' first maximum, times the scale, must stay finite."""
BLOCK_BYTES = 2**32
"""From one block of a cache to the next: fewer."""
CHANNELS_TOGETHER = "B H N D"
POINTERS = (
    "query",
    "key",
    "value",
    "out",
    "lse",
    "query_start_loc",
    "key_start_loc",
    "seq_lens",
    "block_table",
)
"""The kernels' arguments that are addresses."""

KEY, VALUE = slice(0, 8), slice(8, 16)
"""Of the operator's `paged_layout`: six strides, the token and the channel split."""


@dataclass(frozen=True)
class AttentionCall:
    """One launch: `tensors` whose addresses the kernel needs, and all its other arguments."""

    kernel: str
    tensors: dict[str, torch.Tensor]
    numbers: dict[str, float]
    sizes: dict[str, int]


def refusal(request: AttentionRequest, catalogue: Catalogue) -> Verdict:
    """Whether a kernel of `catalogue` computes `request`; if not, one line that says why."""
    arch = catalogue.arch
    if request.dtype not in DTYPES:
        return refused(f"dtype {request.dtype}: the {arch} kernels compute bfloat16 and float16")
    if request.kv_dtype not in (None, request.dtype):
        return refused(f"keys and values in {request.kv_dtype}: the {arch} kernels read none")
    sizes = head_sizes(catalogue, request.dtype, request.paged)
    if request.head_size not in sizes:
        named = " and ".join(map(str, sizes)) or "no size"
        return refused(f"head_size {request.head_size}: the {arch} kernels have {named}")
    for name, given in (
        ("sliding_window", request.sliding_window),
        ("logits_soft_cap", request.logits_soft_cap),
        ("sinks", request.has_sinks),
        ("alibi_slopes", request.has_alibi),
    ):
        if given:
            return refused(f"{name}: not in the {arch} kernels")
    if not request.paged:
        return SERVED
    if request.block_size is not None and request.block_size % BLOCK_TOKENS:
        return refused(
            f"block_size {request.block_size}: the {arch} kernels read multiples of {BLOCK_TOKENS}"
        )
    for what, axes in zip(("keys", "values"), request.cache_layouts or (), strict=False):
        if not axes.endswith(" D") or "/" in axes:
            return refused(f'cache with {what} as "{axes}": the {arch} kernels read whole channels')
    return SERVED


def head_sizes(catalogue: Catalogue, dtype: torch.dtype, paged: bool) -> list[int]:
    """Head sizes that there are kernels for."""
    suffix = "paged" if paged else "packed"
    return sorted(
        entry.tile.depth
        for entry in catalogue.kernels
        if entry.name == kernel_name(dtype, entry.tile.depth, suffix)
    )


def kernel_name(dtype: torch.dtype, head_size: int, keys: str) -> str:
    return f"attention_prefill_{DTYPES[dtype]}_d{head_size}_{keys}"


def dtype_of(kernel: str) -> torch.dtype:
    """The dtype in a kernel's name."""
    return next(dtype for dtype, name in DTYPES.items() if f"_{name}_" in kernel)


def prepare(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    query_start_loc: torch.Tensor,
    key_start_loc: torch.Tensor | None,
    seq_lens: torch.Tensor | None,
    block_table: torch.Tensor | None,
    paged_layout: list[int],
    scale: float,
    value_factor: float,
    causal: bool,
    out: torch.Tensor,
    lse: torch.Tensor | None,
) -> AttentionCall:
    """The launch of one call, whose arguments the operator has checked.

    Raises:
        ValueError: a layout that the kernels cannot read; names the argument, its value and what
            would be valid.
    """
    tokens, heads, head_size = query.shape
    tensors = {"query": query, "key": key, "value": value, "out": out}
    numbers: dict[str, float] = {}
    if paged_layout:
        assert block_table is not None
        assert seq_lens is not None
        if block_table.shape[1] > 1 and block_table.stride(1) != 1:
            block_table = block_table.contiguous()
        tensors |= {"seq_lens": seq_lens.contiguous(), "block_table": block_table}
        numbers["block_table_row"] = block_table.stride(0)
        blocks, block_size, kv_heads = paged_layout[16:]
        if block_size % BLOCK_TOKENS:
            bad("paged_kv", f"block_size {block_size}", f"a multiple of {BLOCK_TOKENS}")
        for name, part in (("key", KEY), ("value", VALUE)):
            numbers |= _paged_strides(name, paged_layout[part], paged_layout[16:], head_size)
    else:
        blocks = block_size = 0
        kv_heads = key.shape[1]
        starts = query_start_loc if key_start_loc is None else key_start_loc
        tensors["key_start_loc"] = starts.contiguous()
        numbers |= {"key_block": 0, "value_block": 0, "block_table_row": 0}
        for name, tensor in (("key", key), ("value", value)):
            numbers |= _packed_strides(name, tensor)
    for name, tensor in (("query", query), ("out", out)):
        numbers |= _packed_strides(name, tensor)
    for name, stride in numbers.items():
        _check_stride(name, int(stride), head_size, query.element_size())
    for name in ("query", "key", "value", "out"):
        address = tensors[name].data_ptr()
        if address % ALIGNMENT:
            bad(name, f"address {address:#x}", f"a multiple of {ALIGNMENT} bytes")
    if abs(scale) > LARGEST_SCALE:
        bad("scale", f"{scale:g}", f"at most {LARGEST_SCALE:g} in size")
    tensors["query_start_loc"] = query_start_loc.contiguous()
    if lse is not None:
        tensors["lse"] = lse
    numbers |= {
        "lse_head": 0 if lse is None else lse.stride(0),
        "lse_token": 1 if lse is None else lse.stride(1),
        "num_blocks": blocks,
        "block_size": block_size,
        "num_kv_heads": kv_heads,
        "causal": int(causal),
        "scale": scale,
        "value_factor": value_factor,
    }
    sizes = {
        "num_requests": query_start_loc.shape[0] - 1,
        "num_tokens": tokens,
        "num_heads": heads,
    }
    name = kernel_name(query.dtype, head_size, "paged" if paged_layout else "packed")
    return AttentionCall(name, tensors, numbers | sizes, sizes)


def _packed_strides(name: str, tensor: torch.Tensor) -> dict[str, int]:
    token, head, channel = tensor.stride()
    tokens, heads, head_size = tensor.shape
    if channel != 1:
        bad(name, f"channel stride {channel}", "1: the kernels read a head's channels at once")
    # torch gives an axis of one element any stride
    return {
        f"{name}_token": token if tokens > 1 else heads * head_size,
        f"{name}_head": head if heads > 1 else head_size,
    }


def _paged_strides(
    name: str, layout: list[int], sizes: list[int], head_size: int
) -> dict[str, int]:
    block, head, _, token, _, channel, token_split, channel_split = layout
    blocks, block_size, heads = sizes
    if channel != 1 or channel_split < head_size or token_split < block_size:
        bad(
            "paged_kv",
            f"{name}s with channel stride {channel}, {token_split} tokens and {channel_split} "
            "channels together",
            f'a cache whose heads are contiguous, as "{CHANNELS_TOGETHER}"',
        )
    return {
        f"{name}_block": block if blocks > 1 else 0,
        f"{name}_head": head if heads > 1 else 0,
        f"{name}_token": token,
    }


def _check_stride(name: str, stride: int, head_size: int, element: int) -> None:
    if name == "block_table_row":
        return
    if stride * element % ALIGNMENT:
        bad(name, f"a stride of {stride} elements", f"a multiple of {ALIGNMENT // element}")
    if name.endswith("_token") and not head_size <= stride < ROW_ELEMENTS:
        bad(name, f"a stride of {stride} elements", f"at least {head_size}, below {ROW_ELEMENTS}")
    if name.endswith("_block") and not 0 <= stride * element < BLOCK_BYTES:
        bad(name, f"a stride of {stride} elements", f"0 to {BLOCK_BYTES // element - 1}")


def bad(argument: str, found: str, expected: str) -> NoReturn:
    raise ValueError(f"{argument}: {found} is not valid on this device: expected {expected}")
