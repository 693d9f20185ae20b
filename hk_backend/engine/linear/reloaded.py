"""Another checkpoint for a running model must be rotated like the one it replaces, or is refused.

A rotation is in no tensor's name, shape or dtype. Without this check the update would succeed, and
the model would compute nonsense.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers.utils import cached_file

from hk_backend.ops.rotation import ROTATION_KEY
from hk_backend.terms.folds import FOLD_KEY, NONE


def check_reload(served: Mapping[str, Any], path: str) -> None:
    """Refuses a checkpoint whose weights are rotated differently.

    Args:
        served: the running model's `quantization_config`; empty if it has none.
        path: the checkpoint that is to replace its weights: a folder, or a name on the hub.

    Raises:
        ValueError: the checkpoint's config.json says that its weights are rotated differently.
    """
    try:
        file = cached_file(path, "config.json")
    except OSError:
        file = None
    if file is None:
        return  # weights alone, or nothing at all, which the engine reports itself
    config = json.loads(Path(file).read_text())
    new = config.get("quantization_config") or config.get("compression_config") or {}
    ours, theirs = rotations_in(served), rotations_in(new)
    if ours != theirs:
        raise ValueError(
            f"{path}: its weights are {_told(theirs)}, those that they would replace are "
            f"{_told(ours)}: start the engine with it instead"
        )


def rotations_in(config: Mapping[str, Any]) -> dict[str, Any]:
    """Rotations of a checkpoint's weights by target or option, and its folds."""
    groups = (config.get("config_groups") or {}).values()
    found = {
        target: (group.get("weights") or {}).get(ROTATION_KEY, 0)
        for group in groups
        for target in group.get("targets", ())
    }
    if str(config.get("quant_method")).startswith("hk_") and config.get("serialized", True):
        found["rotation"] = config.get("rotation", 0)
    folded = {FOLD_KEY: config[FOLD_KEY]} if config.get(FOLD_KEY, NONE) != NONE else {}
    return (found if any(found.values()) else {}) | folded


def _told(rotations: Mapping[str, Any]) -> str:
    if not rotations:
        return "not rotated"
    return "rotated (" + ", ".join(f"{name}: {value}" for name, value in rotations.items()) + ")"
