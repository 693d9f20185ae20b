"""compressed-tensors configurations with rotated weights, which the library itself refuses.

Both engines describe a layer's weight by the library's `QuantizationArgs`. The subclass here also
carries the rotation, wherever the engine passes it on.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from compressed_tensors.quantization import QuantizationArgs

from hk_backend.engine.linear.rotated import RotationError
from hk_backend.engine.linear.transforms import check_transforms
from hk_backend.ops.rotation import EACH, ROTATION_KEY
from hk_backend.reference.rotation import ROTATIONS
from hk_backend.terms.weight_format import MX_BLOCK


class RotatedArgs(QuantizationArgs):  # type: ignore[misc]
    """A weight whose channels along K are rotated, `hk_rotation` of them together."""

    hk_rotation: int


def rotation_of(weight: Any) -> int:
    """Rotation of a weight with these arguments, or None; 0 if it is not rotated."""
    return weight.hk_rotation if isinstance(weight, RotatedArgs) else 0


def with_rotation(scheme: dict[str, Any] | None, rotation: int) -> dict[str, Any] | None:
    """A target's scheme with a rotated weight, if its weight is in an MX format."""
    weight = (scheme or {}).get("weights")
    if scheme is None or weight is None or not rotation:
        return scheme
    if (weight.type, weight.strategy, weight.group_size) != ("float", "group", MX_BLOCK):
        return scheme
    return {**scheme, "weights": RotatedArgs(**weight.model_dump(), hk_rotation=rotation)}


def read_groups(original: Callable[..., dict[str, Any]], config: dict[str, Any]) -> dict[str, Any]:
    """Reads the quantisation of each target in the groups of `config`, a `quantization_config`.

    Wraps an engine's `_quantization_scheme_map_from_config`. Rotated weights get `RotatedArgs`.

    Raises:
        RotationError: a rotation does not exist, or no engine does it.
    """
    check_transforms(config)
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
    """Removes the rotation from a weight's arguments and returns it; 0 if there is none."""
    if ROTATION_KEY not in weights:
        return 0
    rotation = weights.pop(ROTATION_KEY)
    if rotation not in ROTATIONS:
        raise RotationError(f"{ROTATION_KEY}: {rotation!r} is not valid: expected one of {EACH}")
    return int(rotation)
