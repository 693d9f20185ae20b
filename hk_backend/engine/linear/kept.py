"""Lets layers keep their weights if a running engine gets new ones that cannot be packed.

Engines replace weights layer by layer. An error in the middle would leave later layers without
weights, and the engine unusable.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from hk_backend.engine.linear.route import is_attached, keep
from hk_backend.engine.linear.shards import CheckpointError


@dataclass
class _Reload:
    """A reload in progress: layers whose last weight was refused, and layers being packed."""

    refused: dict[Any, ValueError] = field(default_factory=dict)
    packing: set[Any] = field(default_factory=set)


_under_way: ContextVar[_Reload | None] = ContextVar("under_way", default=None)


@contextmanager
def reloading() -> Iterator[None]:
    """Context for a reload, in which another checkpoint replaces the weights of a running model.

    Raises:
        CheckpointError: at the end, if layers kept their weights; it names the tensors.
    """
    reload = _Reload()
    token = _under_way.set(reload)
    try:
        yield
    finally:
        _under_way.reset(token)
    errors = [*reload.refused.values()]
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
    reload = _under_way.get()
    if reload is None or layer in reload.packing:
        yield
        return
    reload.packing.add(layer)
    try:
        yield
        reload.refused.pop(layer, None)
    except ValueError as error:
        if not is_attached(layer):
            raise
        refuse(layer, error)
    finally:
        reload.packing.discard(layer)


def refuse(layer: Any, error: ValueError) -> None:
    """Lets `layer` keep its packed weight, and `reloading` raise `error` at its end.

    Raises:
        ValueError: `error`, if there is no reload.
    """
    reload = _under_way.get()
    if reload is None:
        raise error
    reload.refused[layer] = error
    keep(layer)


def hand_over(layer: Any, other: Any) -> None:
    """Moves the refusal of a newer weight from `layer` to `other`, with its packed weight."""
    reload = _under_way.get()
    if reload is not None and layer in reload.refused:
        reload.refused[other] = reload.refused.pop(layer)
