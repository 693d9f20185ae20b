"""A checkpoint with other weights: the truth about an engine that changes them as it loads."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from hk_backend import reference

Weights = Callable[[str, torch.Tensor], torch.Tensor]
"""A function from a weight's name and values to its new values."""


def rewritten(model: Path, path: Path, change: Weights) -> Path:
    """Copy `model` with other weights in the linear layers of its blocks."""
    shutil.copytree(model, path)
    tensors = load_file(model / "model.safetensors")
    for name, tensor in tensors.items():
        if name.endswith("_proj.weight"):
            tensors[name] = change(name, tensor).contiguous()
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    return path


def fp8_values(name: str, weight: torch.Tensor) -> torch.Tensor:
    codes, scales = reference.quantize_fp8(weight, "channel")
    return reference.dequantize(codes, "fp8_e4m3fn", scales).float()


def mx_values(format: str) -> Weights:
    def change(name: str, weight: torch.Tensor) -> torch.Tensor:
        codes, scales = reference.quantize_mx(weight, format, "even")
        return reference.dequantize(codes, format, scales).float()

    return change
