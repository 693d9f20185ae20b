"""What vLLM computes a linear layer with by itself, for `hk-backend tune` to time beside HK."""

from __future__ import annotations

from collections.abc import Callable

import torch
import vllm
from vllm.model_executor.layers.utils import dispatch_unquantized_gemm

Multiply = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def stock_linear(format: str) -> tuple[str, Multiply] | None:
    """Its name, and `x @ weight.T` by it, for a kind of layer (`gemm_formats.LAYERS`); None: the
    choice needs more than rows and a weight."""
    if format not in ("bf16", "fp16"):
        return None
    gemm = dispatch_unquantized_gemm()

    def multiply(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = gemm(None, x, weight)
        return out

    return f"vLLM {vllm.__version__}: {gemm.__name__}", multiply
