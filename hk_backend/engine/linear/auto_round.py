"""Rotations in auto-round's checkpoints, which no engine reads.

auto-round rotates the weights of all quantised layers but the LM head, and their inputs at
inference. Its Hadamard matrix is HK's: Sylvester's, orthonormal, on blocks of neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hk_backend.engine.linear.rotated import AUTO_ROUND_KEY, RotationError
from hk_backend.reference.rotation import ROTATIONS
from hk_backend.terms.weight_format import MX_BLOCK

OLD_KEY = "hadamard_config"
"""The key until auto-round 0.12."""
SPINQUANT_KEY = "spinquant_config"
VALID: dict[str, tuple[Any, ...]] = {
    "algorithm": ("hadamard",),
    "backend": ("auto", "transform"),
    "hadamard_type": ("hadamard",),
    "block_size": ROTATIONS,
    "fuse_online_to_weight": (None, False),
    # these two do not change what is written
    "layerwise": (False, True),
    "allow_online_rotation": (True, False),
}
"""Entries of `rotation_config`, with the values that HK serves."""


def rotation_in(config: Mapping[str, Any]) -> int:
    """Channels that the inputs of quantised layers are rotated by; 0 if they are not rotated.

    Args:
        config: the `quantization_config` of an auto-round checkpoint.

    Raises:
        RotationError: the checkpoint needs another rotation.
    """
    spin = config.get(SPINQUANT_KEY) or {}
    online_r1 = bool(spin) and spin.get("r1", True) and spin.get("online_r1_rotation", True)
    for name, is_online in (
        ("online_r1_rotation", online_r1),
        ("r3", spin.get("r3")),
        ("r4", spin.get("r4")),
    ):
        if is_online:
            raise _refused(SPINQUANT_KEY, name, True, (False,))
    key = next((key for key in (AUTO_ROUND_KEY, OLD_KEY) if config.get(key)), "")
    if not key:
        return 0
    rotation = {"block_size": MX_BLOCK} | config[key]
    for name, value in rotation.items():
        valid = VALID.get(name, ())
        if value not in valid:
            raise _refused(key, name, value, valid)
    if "mx_fp" not in str(config.get("data_type")):
        raise _refused(f"{key} with", "data_type", config.get("data_type"), ("mx_fp",))
    return int(rotation["block_size"])


def _refused(key: str, name: str, value: Any, valid: tuple[Any, ...]) -> RotationError:
    expected = f"one of {', '.join(map(repr, valid))}" if valid else f"only {', '.join(VALID)}"
    return RotationError(
        f"{key} {name} {value!r} is not valid: nothing here does such a rotation: expected "
        f"{expected}"
    )
