"""A kernel's self-check: a small problem on the device against the reference, before first use.

Compilers and drivers differ from those that a code object was tested with; this finds a kernel
that does not compute what it must on this very machine, before a user's token goes through it.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch

from hk_backend import reference
from hk_backend.devices.hip import attention
from hk_backend.kernels import Catalogue
from hk_backend.routing.shadow_check import largest_error, tolerance
from hk_backend.terms.verdict import SERVED, Verdict, refused

QUERY_LENS, SEQ_LENS = (300, 33), (300, 643)
"""Several workgroups and a diagonal; then a cached prefix of many tiles. Neither fills its last."""
NUM_HEADS, NUM_KV_HEADS, BLOCK_SIZE = 4, 2, 16

Arguments = dict[str, Any]
"""Keyword arguments, as `attention.prepare` or the reference takes them."""


class Launcher(Protocol):
    """What a device has that runs kernels of a catalogue."""

    catalogue: Catalogue

    def torch_device(self, index: int) -> torch.device:
        """Where GPU `index` finds tensors."""

    def launch(self, call: attention.AttentionCall, index: int) -> None:
        """Enqueue a prepared call on GPU `index`."""


def self_check(device: Launcher, kernel: str, index: int) -> Verdict:
    """Run `kernel` on the device's GPU `index`; a refusal if it strays further than rounding."""
    entry = device.catalogue.kernel(kernel)
    dtype = attention.dtype_of(kernel)
    target = device.torch_device(index)
    with torch.device("cpu"):  # an engine may have made a GPU the default
        problem = packed_problem(dtype, entry.tile.depth)
        expected, expected_lse = reference.attention_prefill(**problem)
        arguments = in_pages(problem) if kernel.endswith("_paged") else packed(problem)
    moved: Arguments = {
        name: value.to(target) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }
    out = torch.full_like(moved["query"], float("nan"))
    lse = torch.full(expected_lse.shape, float("nan"), device=target)
    scale = entry.tile.depth**-0.5
    call = attention.prepare(**moved, scale=scale, value_factor=1.0, causal=True, out=out, lse=lse)
    device.launch(call, index)
    limit = tolerance(dtype)
    with torch.device("cpu"):
        error = largest_error(out.cpu(), expected)
        lse_error = float((lse.cpu() - expected_lse).abs().nan_to_num(nan=torch.inf).max())
    if error <= limit and lse_error <= limit:
        return SERVED
    return refused(
        f"{kernel} failed its self-check on {target}: error {error:.2e}, of the log-sum-exp "
        f"{lse_error:.2e}, allowed {limit:.2e}"
    )


def packed_problem(dtype: torch.dtype, head_size: int) -> Arguments:
    """The reference's arguments: causal, packed keys, always the same numbers."""
    random = torch.Generator().manual_seed(0)
    tokens, keys = sum(QUERY_LENS), sum(SEQ_LENS)
    return {
        "query": torch.randn(tokens, NUM_HEADS, head_size, generator=random).to(dtype),
        "key": torch.randn(keys, NUM_KV_HEADS, head_size, generator=random).to(dtype),
        "value": torch.randn(keys, NUM_KV_HEADS, head_size, generator=random).to(dtype),
        "query_start_loc": starts_of(QUERY_LENS),
        "key_start_loc": starts_of(SEQ_LENS),
    }


def packed(problem: Arguments) -> Arguments:
    """The arguments of `attention.prepare` for the problem as it is."""
    return {**problem, "seq_lens": None, "block_table": None, "paged_layout": []}


def in_pages(problem: Arguments) -> Arguments:
    """The same with keys and values in a cache `[B, N, H, D]`: last blocks first, NaN between."""
    counts = [-(-length // BLOCK_SIZE) for length in SEQ_LENS]
    blocks = sum(counts)
    head_size = problem["query"].shape[2]
    shape = (blocks, BLOCK_SIZE, NUM_KV_HEADS, head_size)
    block_table = torch.zeros(len(counts), max(counts), dtype=torch.int32)
    caches = {}
    for name in ("key", "value"):
        cache = torch.full(shape, float("nan"), dtype=problem[name].dtype)
        next_block, first = blocks, 0
        for request, (count, length) in enumerate(zip(counts, SEQ_LENS, strict=True)):
            for block in range(count):
                next_block -= 1
                block_table[request, block] = next_block
                begin = first + block * BLOCK_SIZE
                rows = problem[name][begin : min(begin + BLOCK_SIZE, first + length)]
                cache[next_block, : len(rows)] = rows
            first += length
        caches[name] = cache
    block_stride, token, head, channel = cache.stride()
    view = [block_stride, head, 0, token, 0, channel, BLOCK_SIZE, head_size]
    return {
        "query": problem["query"],
        **caches,
        "query_start_loc": problem["query_start_loc"],
        "key_start_loc": None,
        "seq_lens": torch.tensor(SEQ_LENS, dtype=torch.int32),
        "block_table": block_table,
        "paged_layout": [*view, *view, blocks, BLOCK_SIZE, NUM_KV_HEADS],
    }


def starts_of(lengths: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
