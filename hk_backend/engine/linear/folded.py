"""Checkpoints with rotations folded into their weights (`hk_backend.quantize.folding`).

As a whole such a model computes the same as the original. But adapters, trained on weights without
rotation, and readers of its hidden states would silently get nonsense, so they are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hk_backend.terms.folds import ALL, FOLD_KEY, FOLDS


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
    if fold not in FOLDS:
        known = ", ".join(FOLDS)
        raise ValueError(f"{_found(fold)} is not valid: expected one of {known}")
    if adapters:
        raise ValueError(
            f"{_found(fold)} is not valid with {adapters}, whose base is not rotated: expected "
            "a checkpoint that was quantised with --fold none"
        )
    if readers and fold == ALL:
        raise ValueError(
            f"{_found(fold)} is not valid with {readers}: the model's hidden states are rotated: "
            "expected a checkpoint that was quantised with --fold heads or none"
        )


def _found(fold: Any) -> str:
    return f"quantization_config: {FOLD_KEY} {fold!r}"
