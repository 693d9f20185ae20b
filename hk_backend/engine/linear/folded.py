"""Checkpoints whose weights do rotations for each other (`hk_backend.quantize.folding`).

As a whole such a model is the original's. Adapters, which were trained on weights that are not
rotated, and readers of its hidden states would get nonsense without a sign of it: refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hk_backend.terms.folds import ALL, FOLD_KEY, FOLDS


def check_fold(config: Mapping[str, Any], adapters: str, readers: str) -> None:
    """
    Args:
        config: the model's `quantization_config`; empty if it has none.
        adapters: what adds to outputs of layers, in the engine's words; empty: nothing does.
        readers: what reads hidden states or writes embeddings, likewise.

    Raises:
        ValueError: a fold that does not exist, or one that does not go with them.
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
