"""vLLM's Triton products: FP8 and MXFP8 with scales, and its batch-invariant product of bf16."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any
from unittest.mock import patch

import torch

from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock.layers import BLOCK, Layer, Operands
from hk_backend.lab.stock.linear import NO_ACCUMULATOR, StockLinear

QUANTISED = "vllm.model_executor.layers.quantization"
MXFP8 = "vllm.model_executor.kernels.linear.mxfp8.rocm_native"
DEEP = 2048
"""K for which its MXFP8 product takes the tiles that it has for models' layers."""


def run_scaled_mm(of: Operands) -> torch.Tensor:
    """`triton_scaled_mm`: scales of tensors, or of tokens and channels."""
    module = import_module(f"{QUANTISED}.compressed_tensors.triton_scaled_mm")
    out: torch.Tensor = module.triton_scaled_mm(
        of.x, of.weight.t(), of.x_scale, of.weight_scale, torch.bfloat16
    )
    return out


def run_block_scaled_mm(of: Operands) -> torch.Tensor:
    """`w8a8_triton_block_scaled_mm`, with the configuration that vLLM ships for the shape."""
    module = import_module(f"{QUANTISED}.utils.fp8_utils")
    out: torch.Tensor = module.w8a8_triton_block_scaled_mm(
        of.x, of.weight, of.x_scale, of.weight_scale, [BLOCK, BLOCK], torch.bfloat16
    )
    return out


def run_mxfp8(of: Operands) -> torch.Tensor:
    """`_mxfp8_dot_scaled_linear`, whose launcher gets our codes where it would quantise x."""
    module = import_module(MXFP8)
    x = torch.empty(of.layer.m, of.layer.k, dtype=torch.bfloat16)
    with patch.object(module, "mxfp8_e4m3_quantize", lambda _: (of.x, of.x_scale)):
        out: torch.Tensor = module._mxfp8_dot_scaled_linear(x, of.weight, of.weight_scale)
    return out


def checked_mxfp8(layer: Layer) -> Layer:
    """A layer deep enough for the tiles of models' layers."""
    return replace(layer, k=DEEP)


def run_matmul(of: Operands) -> torch.Tensor:
    """`matmul_persistent`, which vLLM takes for batch-invariant results."""
    module: Any = import_module("vllm.model_executor.determinism.batch_invariant")
    platform = import_module("vllm.platforms").current_platform
    triton = import_module("triton.runtime")
    units = triton.driver.active.utils.get_device_properties(0)["multiprocessor_count"]
    type(platform).num_compute_units = classmethod(lambda cls, device_id=0: units)
    module._BLOCK_SIZES_RESOLVED = True  # else it asks the driver, for other dtypes than bf16
    out: torch.Tensor = module.matmul_persistent(of.x, of.weight.t())
    return out


def kernels(gpu: TritonGpu) -> list[StockLinear]:
    """vLLM's products; a bf16 layer usually is hipBLASLt's, which cannot be compiled here."""
    return [
        StockLinear(gpu, "vLLM triton_scaled_mm", ("fp8_tensor", "fp8_channel"), run_scaled_mm),
        StockLinear(gpu, "vLLM block_scaled_mm", ("fp8_block",), run_block_scaled_mm),
        StockLinear(gpu, "vLLM matmul_persistent", ("bf16",), run_matmul),
        StockLinear(
            gpu,
            "vLLM mxfp8_linear",
            ("mxfp8",),
            run_mxfp8,
            checked=checked_mxfp8,
            tolerated=NO_ACCUMULATOR,
        ),
    ]
