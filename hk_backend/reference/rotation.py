"""Definition of the rotation of activations and weights along K."""

from __future__ import annotations

import torch

ROTATIONS = (32, 64, 128)
"""Numbers of channels that may be rotated together."""


def rotated(x: torch.Tensor, block: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Multiplies each `block` neighbours of the last axis by `hadamard(block)`.

    The matrix is orthogonal and symmetric, so a second rotation undoes the first.

    Raises:
        ValueError: `block` is none of `ROTATIONS`, or does not divide the last axis.
    """
    if block not in ROTATIONS:
        raise ValueError(f"block: {block} is not valid: expected one of {ROTATIONS}")
    if x.shape[-1] % block:
        raise ValueError(f"x: {x.shape[-1]} channels are not valid: expected a multiple of {block}")
    pieces: torch.Tensor = x.to(dtype).unflatten(-1, (-1, block)) @ hadamard(block, dtype)
    return pieces.flatten(-2)


def hadamard(block: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """The Hadamard matrix `[block, block]` in Sylvester's order, divided by sqrt(block).

    Element (i, j) is the parity of i & j as a sign. The matrix is orthogonal and symmetric.
    """
    signs = torch.ones(1, 1, dtype=dtype)
    while len(signs) < block:
        signs = torch.cat([torch.cat([signs, signs], 1), torch.cat([signs, -signs], 1)])
    matrix: torch.Tensor = signs * block**-0.5
    return matrix
