"""Checks of a whole checkpoint with rotated weights, before it is served or replaces another.

With rotations folded into its weights (`hk_backend.quantize.folding`), a model as a whole computes
the same as the original. But adapters, trained on weights without rotation, and readers of its
hidden states would silently get nonsense, so they are refused.

Another checkpoint for a running model must be rotated like the one it replaces. A rotation is in no
tensor's name, shape or dtype, so the update would succeed, and the model would compute nonsense.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers.utils import cached_file

from hk_backend.engine.linear.auto_round import OLD_KEY, SPINQUANT_KEY
from hk_backend.engine.linear.rotated import AUTO_ROUND_KEY, TRANSFORMS_KEY
from hk_backend.ops.rotation import ROTATION_KEY
from hk_backend.terms.folds import ALL, FOLD_KEY, FOLDS, NONE

FOREIGN = (TRANSFORMS_KEY, AUTO_ROUND_KEY, OLD_KEY, SPINQUANT_KEY)
"""Keys of other tools that say how weights are rotated."""


def check_fold(config: Mapping[str, Any], adapters: str, readers: str) -> None:
    """Refuses a checkpoint with folds that do not go with how it is served.

    Args:
        config: the model's `quantization_config`; empty if it has none.
        adapters: what adds to outputs of layers, in the engine's words; empty if nothing does.
        readers: what reads hidden states or writes embeddings, in the engine's words; or empty.

    Raises:
        ValueError: the fold does not exist, or does not go with adapters or readers.
    """
    if FOLD_KEY not in config:
        return
    fold = config[FOLD_KEY]
    found = f"quantization_config: {FOLD_KEY} {fold!r} is not valid"
    if fold not in FOLDS:
        raise ValueError(f"{found}: expected one of {', '.join(FOLDS)}")
    if adapters:
        raise ValueError(
            f"{found} with {adapters}, whose base is not rotated: expected "
            "a checkpoint that was quantised with --fold none"
        )
    if readers and fold == ALL:
        raise ValueError(
            f"{found} with {readers}: the model's hidden states are rotated: "
            "expected a checkpoint that was quantised with --fold heads or none"
        )


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
    foreign = {key: config[key] for key in FOREIGN if config.get(key)}
    folded = {FOLD_KEY: config[FOLD_KEY]} if config.get(FOLD_KEY, NONE) != NONE else {}
    return (found if any(found.values()) else {}) | foreign | folded


def _told(rotations: Mapping[str, Any]) -> str:
    if not rotations:
        return "not rotated"
    return "rotated (" + ", ".join(f"{name}: {value}" for name, value in rotations.items()) + ")"
