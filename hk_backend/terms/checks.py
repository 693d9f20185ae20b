"""Argument errors, worded the same way by every operator."""

from __future__ import annotations

from typing import NoReturn

import torch


def bad(argument: str, found: object, expected: str) -> NoReturn:
    """Raises the error of a bad argument: its name, its value, and what would be valid."""
    raise ValueError(f"{argument}: {found} is not valid: expected {expected}")


def check_no_grad(**tensors: torch.Tensor | None) -> None:
    """Refuses tensors that would need a backward pass.

    Raises:
        ValueError: a tensor requires grad where gradients are being recorded.
    """
    if not torch.is_grad_enabled():
        return
    for name, tensor in tensors.items():
        if tensor is not None and tensor.requires_grad:
            bad(name, "a tensor that requires grad", "inference: this operator has no backward")
