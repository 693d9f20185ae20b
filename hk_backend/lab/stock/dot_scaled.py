"""A plain product with Triton's `tl.dot_scaled`, for MX formats that no package multiplies.

The kernel is ours and as short as such kernels are: K is not split, and nobody has tuned its tiles.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import torch

from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock.layers import MX, Layer, Operands
from hk_backend.lab.stock.linear import NO_ACCUMULATOR, StockLinear

NAME = "Triton tl.dot_scaled"
FORMATS = ("mxfp4_mxfp8", "mxfp4_weight_only", "mxfp8_weight_only")
ELEMENTS = {"bf16": "bf16", "mxfp8": "e4m3", "mxfp4": "e2m1"}
FEW, DEEP = 64, 512
"""Most rows for which tiles are narrow; a multiple of every tile's depth."""


def run(of: Operands) -> torch.Tensor:
    """`product`, in tiles of 16 or 64 by 64, or of 128 by 128."""
    kernels: Any = import_module("hk_backend.lab.stock.dot_scaled_kernels")
    m, n, k = of.layer.m, of.layer.n, of.layer.k
    out = torch.empty(m, n, dtype=torch.bfloat16)
    x_format, weight_format = (ELEMENTS[each] for each in MX[of.layer.format])
    rows, columns, warps = (16 if m <= 16 else 64, 64, 4) if m <= FEW else (128, 128, 8)
    kernels.product[(-(-m // rows), -(-n // columns))](
        of.x, of.x_scale, of.weight, of.weight_scale, out, m, n, k,
        X=x_format, W=weight_format, M=rows, N=columns, K=256 if m <= FEW else 128,
        num_warps=warps, num_stages=2,
    )  # fmt: skip
    return out


def lacks(layer: Layer) -> str:
    return f"K must be a multiple of {DEEP}" if layer.k % DEEP else ""


def kernels(gpu: TritonGpu) -> list[StockLinear]:
    """The product, for what neither vLLM nor AITER multiplies in Triton."""
    return [
        StockLinear(
            gpu, NAME, FORMATS, run, lacks, lambda layer: replace(layer, k=DEEP), NO_ACCUMULATOR
        )
    ]
