"""Lets layers keep their weights if a running engine gets new ones that cannot be packed.

Engines replace weights layer by layer. An error in the middle would leave later layers without
weights, and the engine unusable.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from hk_backend.engine.holding import holding
from hk_backend.engine.linear.route import is_attached, keep
from hk_backend.engine.linear.shards import CheckpointError

_refused: ContextVar[dict[Any, ValueError] | None] = ContextVar("refused", default=None)
"""Errors of the reload in progress, by layer; None: there is no reload."""


@contextmanager
def reloading() -> Iterator[None]:
    """Context for a reload, in which another checkpoint replaces the weights of a running model.

    Raises:
        CheckpointError: at the end, if layers kept their weights; it names the tensors.
    """
    refused: dict[Any, ValueError] = {}
    with holding(_refused, refused):
        yield
    errors = [*refused.values()]
    if errors:
        raise CheckpointError(
            f"{'; '.join(map(str, errors))}. These layers keep the weights that they had, the "
            "others have new ones: reload a valid checkpoint"
        ) from errors[0]


@contextmanager
def or_kept(layer: Any) -> Iterator[None]:
    """Context for packing a weight for `layer`, which in a reload keeps its own after a refusal.

    Raises:
        ValueError: the error raised inside, if there is no reload or no packed weight.
    """
    try:
        yield
    except ValueError as error:
        if not is_attached(layer):
            raise
        refuse(layer, error)
    else:
        (_refused.get() or {}).pop(layer, None)


def refuse(layer: Any, error: ValueError) -> None:
    """Lets `layer` keep its packed weight, and `reloading` raise `error` at its end.

    Raises:
        ValueError: `error`, if there is no reload.
    """
    refused = _refused.get()
    if refused is None:
        raise error
    refused[layer] = error
    keep(layer)


def hand_over(layer: Any, other: Any) -> None:
    """Moves the refusal of a newer weight from `layer` to `other`, with its packed weight."""
    refused = _refused.get()
    if refused is not None and layer in refused:
        refused[other] = refused.pop(layer)
