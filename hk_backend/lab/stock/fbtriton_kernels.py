"""Kernels that fbtriton ships for an MI355X, written in its extension of Triton, TLX."""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hk_backend.lab.foreign.triton_driver import UNITS, TritonGpu
from hk_backend.lab.stock.attention import StockAttention
from hk_backend.lab.stock.batches import ROWS, Batch, packed_tokens
from hk_backend.lab.stock.layers import Layer, Operands
from hk_backend.lab.stock.linear import StockLinear
from hk_backend.terms.attention_arguments import AttentionArguments

NAME = "fbtriton"
SHIPPED = "triton.language.extra.tlx.tutorials"
TILE, STEP = 256, 64
"""Rows and columns of a product's tile, and columns of x in a step: it takes multiples of them."""
KEYS = 128
"""A multiple of the keys in a step of its attention, at each head size."""


def run_attention(given: AttentionArguments) -> None:
    """The persistent kernel, on requests of one length; keys are repeated for each head, untimed.

    It has no grouped heads.
    """
    module = import_module(f"{SHIPPED}.amd_fa_persistent")
    requests = len(given.query_start_loc) - 1
    keys, values = (_by_heads(each, requests, given) for each in packed_tokens(given))
    query = _by_heads(given.query, requests, given)
    out = module.attention(query, keys, values, given.query.shape[2] ** -0.5, causal=True)
    given.out.copy_(out.transpose(1, 2).reshape(given.out.shape))


def _by_heads(tokens: torch.Tensor, requests: int, given: AttentionArguments) -> torch.Tensor:
    """`[requests, heads of the query, tokens, elements]`, from `[tokens, heads, elements]`."""
    repeated = tokens.repeat_interleave(given.query.shape[1] // tokens.shape[1], dim=1)
    return repeated.view(requests, -1, *repeated.shape[1:]).transpose(1, 2).contiguous()


def attention_work(batch: Batch, grid: Sequence[int]) -> NDArray[np.float64]:
    """Each workgroup takes its share of the tiles."""
    return np.ones(grid[0])


def lacks_in_attention(batch: Batch) -> str:
    if len({*batch.queries}) > 1 or len({*batch.keys}) > 1:
        return "its requests have one length"
    if batch.keys[0] % KEYS:
        return f"keys must be a multiple of {KEYS}"
    if batch.head_size > KEYS:
        return f"its heads have at most {KEYS} elements"
    if batch.window or batch.soft_cap or batch.sinks or batch.fp8:
        return "it has no window, soft cap, sinks and FP8"
    return ""


def run_product(of: Operands) -> torch.Tensor:
    """`amd_gemm_warp_pipeline`; the weight lies [K, N], as that kernel wants it."""
    module = import_module(f"{SHIPPED}.amd_gemm_warp_pipeline")
    out: torch.Tensor = module.matmul(of.x, of.weight.t().contiguous())
    return out


def lacks_in_products(layer: Layer) -> str:
    if layer.m % TILE or layer.n % TILE or layer.k % STEP:
        return f"M and N must be multiples of {TILE}, and K of {STEP}"
    return ""


def kernels(gpu: TritonGpu) -> list[StockAttention | StockLinear]:
    """fbtriton's attention and its bf16 product."""
    _answer_for_units(gpu.arch)
    return [
        StockAttention(
            gpu,
            f"{NAME} amd_fa_persistent",
            ROWS,
            run_attention,
            attention_work,
            lambda grid: 1,
            lacks_in_attention,
            lambda batch: replace(batch, queries=(300,) * 2, keys=(3 * KEYS,) * 2),
        ),
        StockLinear(
            gpu,
            f"{NAME} amd_gemm_warp_pipeline",
            ("bf16",),
            run_product,
            lacks_in_products,
            lambda layer: Layer(layer.format, TILE, 2 * TILE, 10 * STEP),
        ),
    ]


def _answer_for_units(arch: str) -> None:
    """Let torch tell the number of compute units, for which the persistent kernel asks it."""
    facts: Any = types.SimpleNamespace(multi_processor_count=UNITS[arch])
    torch.cuda.get_device_properties = lambda device=None: facts
