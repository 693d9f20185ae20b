"""The rotation in float32, with the exact order of operations that devices follow."""

from __future__ import annotations

import torch


def rotated_float32(x: torch.Tensor, block: int) -> torch.Tensor:
    """`rotated(x, block)` in float32, by the operations that every device follows bit by bit.

    x is widened to float32. For h = 1, 2, 4, ... below `block`, channels i and i + h of a block
    become their sum and difference, for every i without the bit h. Finally every channel is
    multiplied by `1 / sqrt(block)`, rounded to float32. Each result is rounded to float32, none is
    fused.
    """
    values: torch.Tensor = x.float().unflatten(-1, (-1, block))
    h = 1
    while h < block:
        a, b = values.unflatten(-1, (-1, 2, h)).unbind(-2)
        values = torch.stack((a + b, a - b), -2).flatten(-3)
        h *= 2
    values = values * torch.tensor(block**-0.5, dtype=torch.float32)
    return values.flatten(-2)
