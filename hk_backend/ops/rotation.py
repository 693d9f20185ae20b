"""Which rotations of activations there are, for all operators that take one."""

from __future__ import annotations

from hk_backend.reference.rotation import ROTATIONS
from hk_backend.terms.weight_format import ROTATED

EACH = ", ".join(map(str, ROTATIONS))


def rotation_fault(rotation: int, activations: str, k: int) -> tuple[str, str] | None:
    """Of a layer with K input features, what is wrong and what would be valid; None: nothing."""
    found = f"{rotation} with activations {activations!r}"
    if activations not in ROTATED:
        return None if rotation == 0 else (found, "0")
    if rotation not in ROTATIONS:
        return found, f"one of {EACH}"
    return block_fault(rotation, k)


def block_fault(rotation: int, k: int) -> tuple[str, str] | None:
    """The same of rows of K elements by themselves, where 0 is none."""
    if rotation not in (0, *ROTATIONS):
        return str(rotation), f"0 or one of {EACH}"
    if rotation and k % rotation:
        return f"{rotation} with K = {k}", "a divisor of K"
    return None
