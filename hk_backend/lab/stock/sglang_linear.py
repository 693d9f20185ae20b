"""SGLang's Triton product of MXFP8, which it has for gfx950."""

from __future__ import annotations

from importlib import import_module

import torch

from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock.layers import Operands
from hk_backend.lab.stock.linear import NO_ACCUMULATOR, StockLinear

MXFP8 = "sglang.kernels.ops.gemm.mxfp8_amd_gfx95"


def run_mxfp8(of: Operands) -> torch.Tensor:
    """The product of codes, in the tile that SGLang takes for the shape."""
    out: torch.Tensor = import_module(MXFP8)._run_mxfp8_linear_kernel(
        of.x, of.x_scale, of.weight, of.weight_scale, torch.bfloat16
    )
    return out


def kernels(gpu: TritonGpu) -> list[StockLinear]:
    """SGLang's product of weights with a scale for each 32 elements of a row."""
    return [
        StockLinear(gpu, "SGLang mxfp8_linear", ("mxfp8",), run_mxfp8, tolerated=NO_ACCUMULATOR)
    ]
