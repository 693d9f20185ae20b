"""The rotation as devices compute it: float32, every operation in a given order."""

from __future__ import annotations

import torch


def rotated_float32(x: torch.Tensor, block: int) -> torch.Tensor:
    """`rotated(x, block)` in the operations that each device follows bit by bit, float32.

    x is widened to float32. For h = 1, 2, 4, ... below `block`, channels i and i + h of a block,
    where i has not the bit h, become their sum and difference. At last every channel is multiplied
    by `1 / sqrt(block)`, rounded to float32. Each result is rounded to float32, none is fused.
    """
    values: torch.Tensor = x.float().unflatten(-1, (-1, block))
    h = 1
    while h < block:
        a, b = values.unflatten(-1, (-1, 2, h)).unbind(-2)
        values = torch.stack((a + b, a - b), -2).flatten(-3)
        h *= 2
    values = values * torch.tensor(block**-0.5, dtype=torch.float32)
    return values.flatten(-2)
