"""Which rotations of activations there are, for all operators that take one, and how a checkpoint
says that its weights have one."""

from __future__ import annotations

from typing import SupportsIndex

from hk_backend.reference.rotation import ROTATIONS
from hk_backend.terms.weight_format import ROTATED

EACH = ", ".join(map(str, ROTATIONS))
ROTATION = 64
"""The default where weights are quantised. Of mxfp4 on two models blocks of 32 are better by 4% and
worse by 6% of the perplexity; heads lose less by 64 (docs/quantize.md)."""
ROTATION_KEY = "hk_rotation"
"""In a weight's arguments: how many channels along K are rotated together
(`hk_backend.reference.rotation`), those of the weight already, those of the input while serving.

compressed-tensors' own `transform_config` can say the same (a "hadamard" of this `head_dim` at
"input"), but SGLang and transformers do not look at it, and would serve nonsense. In its
`QuantizationArgs` an unknown key is an error to everybody who reads them.
"""


def fitting_rotation(k: int) -> int:
    """`ROTATION`, or else the largest that divides K channels; 0: none does."""
    return next((block for block in (ROTATION, *reversed(ROTATIONS)) if k % block == 0), 0)


def rotation_fault(rotation: int, activations: str, k: int) -> tuple[str, str] | None:
    """Of a layer with K input features, what is wrong and what would be valid; None: nothing."""
    found = f"{rotation} with activations {activations!r}"
    if activations not in ROTATED:
        return None if rotation == 0 else (found, "0")
    if rotation not in ROTATIONS or not isinstance(rotation, SupportsIndex):  # as 64.0 is not
        return found, f"one of {EACH}"
    return block_fault(rotation, k)


def block_fault(rotation: int, k: int) -> tuple[str, str] | None:
    """The same of rows of K elements by themselves, where 0 is none."""
    if rotation not in (0, *ROTATIONS) or not isinstance(rotation, SupportsIndex):
        return str(rotation), f"0 or one of {EACH}"
    if rotation and k % rotation:
        return f"{rotation} with K = {k}", "a divisor of K"
    return None
