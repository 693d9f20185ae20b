"""Rotations of activations: those that operators accept, and their key in a checkpoint."""

from __future__ import annotations

from typing import SupportsIndex

from hk_backend.reference.rotation import ROTATIONS
from hk_backend.terms.weight_format import ROTATED

EACH = ", ".join(map(str, ROTATIONS))
ROTATION = 64
"""Default rotation where weights are quantised.

With mxfp4, blocks of 32 instead improve the perplexity of one model by 4% and worsen that of
another by 6%.
Heads lose less with 64 (docs/quantize.md).
"""
ROTATION_KEY = "hk_rotation"
"""Key in a weight's arguments: the number of channels along K that are rotated together.

The weight is rotated already; its input is rotated while serving (`hk_backend.reference.rotation`).

compressed-tensors' own `transform_config` can say the same (a "hadamard" of this `head_dim` at
"input"). But SGLang and transformers ignore it, and would serve nonsense. An unknown key in its
`QuantizationArgs` is an error to everybody who reads them.
"""


def fitting_rotation(k: int) -> int:
    """`ROTATION` if it divides K channels, else the largest that does; 0 if none does."""
    return next((block for block in (ROTATION, *reversed(ROTATIONS)) if k % block == 0), 0)


def rotation_fault(rotation: int, activations: str, k: int) -> tuple[str, str] | None:
    """Fault of a layer's rotation, and what would be valid; None if there is no fault.

    `k` is the layer's number of input features.
    """
    found = f"{rotation} with activations {activations!r}"
    if activations not in ROTATED:
        return None if rotation == 0 else (found, "0")
    if rotation not in ROTATIONS or not isinstance(rotation, SupportsIndex):  # excludes 64.0
        return found, f"one of {EACH}"
    return block_fault(rotation, k)


def block_fault(rotation: int, k: int) -> tuple[str, str] | None:
    """Fault of a rotation of rows with K elements, and what would be valid; None: no fault.

    Here 0 stands for no rotation.
    """
    if rotation not in (0, *ROTATIONS) or not isinstance(rotation, SupportsIndex):
        return str(rotation), f"0 or one of {EACH}"
    if rotation and k % rotation:
        return f"{rotation} with K = {k}", "a divisor of K"
    return None
