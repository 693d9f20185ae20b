"""FlyDSL's own kernels for an MI355X: bf16 attention, and bf16 products.

They lie in the folder `kernels` of its repository, which its wheel does not contain: that folder's
parent must be on PYTHONPATH.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock import flydsl_gpu
from hk_backend.lab.stock.attention import StockAttention, steps_of
from hk_backend.lab.stock.batches import ROWS, Batch, packed_tokens
from hk_backend.lab.stock.flydsl_gpu import FlyGpu
from hk_backend.lab.stock.layers import Layer, Operands
from hk_backend.lab.stock.linear import StockLinear
from hk_backend.terms.attention_arguments import AttentionArguments

NAME = "FlyDSL"
TOKENS, KEYS = 256, 64
"""Tokens of a workgroup of attention, which are rows of a product's tile, too; keys in a step."""
HEADS = (64, 128)
"""Head sizes of its attention."""
STEP, STEPS = 64, 2
"""Columns of x in a step of a product; halves of tiles take turns, so their number is even."""
COLUMNS = 8
"""A product's rows of 16 bytes."""
ON_PURPOSE = ("hazard", "ambiguous")
"""Checks of which its attention has findings, with the right result.

It reads a scalar register one instruction after a comparison wrote it, where LLVM keeps two away,
and the last step of packed keys begins past the buffer's end.
"""


@lru_cache
def _attention(heads: int, kv_heads: int, size: int, cross: bool) -> Any:
    module = import_module("kernels.attention.flash_attn_gfx950")
    return module.build_flash_attn_dualwave_swp_module(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=size,
        causal=True,
        dtype_str="bf16",
        varlen=True,
        cross_seqlen=cross,
    )


def run_attention(fly: FlyGpu, given: AttentionArguments) -> None:
    """Attention over packed requests; keys from a cache are gathered before, untimed."""
    assert given.paged_kv is not None
    assert given.seq_lens is not None
    _, heads, size = given.query.shape
    new = given.query_start_loc.diff().int()
    totals = torch.nn.functional.pad(given.seq_lens.cumsum(0), (1, 0)).int()
    launcher = _attention(
        heads, given.paged_kv.num_kv_heads, size, not torch.equal(new, given.seq_lens)
    )
    fly.call(
        launcher,
        given.query,
        *packed_tokens(given),
        given.out,
        len(new),
        int(new.max()),
        cu_seqlens_q=given.query_start_loc,
        cu_seqlens_kv=totals,
        seq_len_kv=int(given.seq_lens.max()),
    )


def attention_work(batch: Batch, grid: Sequence[int]) -> NDArray[np.float64]:
    """Steps of each workgroup: requests, then blocks of tokens, then heads."""
    steps = np.zeros((grid[2], grid[1], 1))
    for request, (new, total) in enumerate(zip(batch.queries, batch.keys, strict=True)):
        begins = np.arange(0, new, TOKENS)
        steps[request, : len(begins), 0] = steps_of(batch, begins, TOKENS, new, total, KEYS)
    return np.broadcast_to(steps, (grid[2], grid[1], grid[0])).reshape(-1)


def lacks_in_attention(batch: Batch) -> str:
    if batch.head_size not in HEADS:
        return f"its heads have {HEADS} elements"
    if batch.window or batch.soft_cap or batch.sinks or batch.fp8:
        return "it is called without window, soft cap, sinks and FP8"
    return "decodes are no rows of it" if batch.decode else ""


def run_product(fly: FlyGpu, of: Operands, halves: bool) -> torch.Tensor:
    """`gemm_a16w16`; `halves`: by its default, two halves of a tile take turns."""
    module = import_module("kernels.gemm.gemm_a16w16_gfx950")
    out: torch.Tensor = fly.call(
        module.gemm_a16w16,
        of.x,
        of.weight.t(),
        user_kwargs={"use_half_tile_interleaved": halves},
        stream=flydsl_gpu.Stream(),
    )
    return out


def lacks_in_products(layer: Layer) -> str:
    if layer.m < TOKENS:
        return f"its default tile has {TOKENS} rows; for fewer ones its users search others"
    if layer.k % (STEP * STEPS) or layer.n % COLUMNS:
        return f"K must be a multiple of {STEP * STEPS}, and N of {COLUMNS}"
    return ""


def kernels(fly: FlyGpu) -> list[StockAttention | StockLinear]:
    """FlyDSL's attention over packed keys, and both schedules of its bf16 product."""
    gpu: TritonGpu = fly.gpu

    def product(name: str, halves: bool) -> StockLinear:
        return StockLinear(
            gpu,
            f"{NAME} {name}",
            ("bf16",),
            lambda of: run_product(fly, of, halves),
            lacks_in_products,
            lambda layer: replace(layer, k=STEP * STEPS * -(-layer.k // (STEP * STEPS))),
        )

    return [
        StockAttention(
            gpu,
            f"{NAME} flash_attn",
            ROWS,
            lambda given: run_attention(fly, given),
            attention_work,
            lambda grid: 1,
            lacks_in_attention,
            tolerated=ON_PURPOSE,
        ),
        product("gemm_a16w16", True),
        product("gemm_a16w16, whole tiles", False),
    ]
