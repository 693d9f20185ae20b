"""compressed-tensors configurations that say how weights are rotated, which the library refuses.

Both engines describe a layer's weight by the library's `QuantizationArgs`; here it can say the
rotation, too, wherever the engine hands it on to.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from compressed_tensors.quantization import QuantizationArgs

from hk_backend.engine.linear.rotated import RotationError
from hk_backend.ops.rotation import EACH, ROTATION_KEY
from hk_backend.reference.rotation import ROTATIONS


class RotatedArgs(QuantizationArgs):  # type: ignore[misc]
    """A weight that is rotated: so many channels along K together."""

    hk_rotation: int


def rotation_of(weight: Any) -> int:
    """How a weight of these arguments, or None, is rotated; 0: not at all."""
    return weight.hk_rotation if isinstance(weight, RotatedArgs) else 0


def read_groups(original: Callable[..., dict[str, Any]], config: dict[str, Any]) -> dict[str, Any]:
    """An engine's `_quantization_scheme_map_from_config`: what each target of the groups of
    `config`, a `quantization_config`, is quantised to. Weights that are rotated say so.

    Raises:
        RotationError: a rotation that does not exist.
    """
    plain, rotations = deepcopy(config), dict[str, int]()
    for group in plain.get("config_groups", {}).values():
        rotation = _taken(group.get("weights") or {})
        rotations |= dict.fromkeys(group["targets"], rotation)
    schemes = original(config=plain)
    for target, rotation in rotations.items():
        if rotation:
            known = schemes[target]["weights"].model_dump()
            schemes[target]["weights"] = RotatedArgs(**known, hk_rotation=rotation)
    return schemes


def _taken(weights: dict[str, Any]) -> int:
    """The rotation, taken out of what the library is to read; 0: none."""
    if ROTATION_KEY not in weights:
        return 0
    rotation = weights.pop(ROTATION_KEY)
    if rotation not in ROTATIONS:
        raise RotationError(f"{ROTATION_KEY}: {rotation!r} is not valid: expected one of {EACH}")
    return int(rotation)
