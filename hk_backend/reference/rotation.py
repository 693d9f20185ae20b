"""The rotation of activations and weights along K, by definition."""

from __future__ import annotations

import torch

ROTATIONS = (32, 64, 128)
"""Channels that are rotated together."""


def rotated(x: torch.Tensor, block: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Each `block` neighbours of the last axis, a multiple of it, times the Hadamard matrix of
    Sylvester's order divided by sqrt(block): orthogonal and symmetric, so that it undoes itself.

    Raises:
        ValueError: `block` is none of `ROTATIONS`, or does not divide the last axis.
    """
    if block not in ROTATIONS:
        raise ValueError(f"block: {block} is not valid: expected one of {ROTATIONS}")
    if x.shape[-1] % block:
        raise ValueError(f"x: {x.shape[-1]} channels are not valid: expected a multiple of {block}")
    pieces = x.to(dtype).unflatten(-1, (-1, block))
    return (pieces @ hadamard(block, dtype)).flatten(-2)


def hadamard(block: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """`[block, block]`, orthogonal and symmetric: element (i, j) is the parity of i & j as a sign,
    divided by sqrt(block)."""
    signs = torch.ones(1, 1, dtype=dtype)
    while len(signs) < block:
        signs = torch.cat([torch.cat([signs, signs], 1), torch.cat([signs, -signs], 1)])
    return signs * block**-0.5
