"""Remembers the names of a model's tensors while they load, and refuses to save a packed model.

Errors can then name a tensor that the engine cannot load, as its own checks are bare assertions.
The names also tell whether a merged layer came in shards.

Engines save a model's state as it is in memory. Saved packed tensors could not be loaded again, as
a new layer is not packed yet and has no place for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from hk_backend.engine.linear.route import is_attached
from hk_backend.engine.linear.shards import CheckpointError
from hk_backend.engine.patching import wrap

NamedTensor = tuple[str, torch.Tensor]
_loaded: set[str] = set()
_current: list[NamedTensor] = []


def was_loaded(name: str) -> bool:
    """Whether the checkpoint that was loaded last holds this tensor.

    The part of the name before a layer's number does not count, as models may rename it.
    """
    return _tail(name) in _loaded


def _tail(name: str) -> str:
    found = re.search(r"(?:^|\.)(\d+\..*)", name)
    return found[1] if found else name


def remember_names(tensors: Iterable[NamedTensor]) -> Iterator[NamedTensor]:
    """Yields a checkpoint's tensors by name, unchanged, and remembers them."""
    _loaded.clear()
    for item in tensors:
        _current[:] = [item]
        _loaded.add(_tail(item[0]))
        yield item
    _current.clear()


@contextmanager
def named_errors() -> Iterator[None]:
    """Context for the loading of tensors that `remember_names` yields, so that errors name them.

    Raises:
        CheckpointError: instead of the engine's error about a tensor's shape, with its name.
    """
    try:
        yield
    except (AssertionError, RuntimeError, ValueError, IndexError) as error:
        if not _current or isinstance(error, CheckpointError) or not _of_shape(error):
            raise
        name, tensor = _current[0]
        found = f"{tensor.dtype} {list(tensor.shape)}"
        why = str(error) or "its shape is not the layer's"
        raise CheckpointError(f"{name}: {found} cannot be loaded: {why}") from error
    finally:
        _current.clear()


def _of_shape(error: Exception) -> bool:
    """Whether to blame the current tensor: any error but a RuntimeError that mentions no shape.

    Such a one is about an operator that the platform lacks.
    """
    said = any(word in str(error) for word in ("size of tensor", "dimension size", "shape"))
    return said or not isinstance(error, RuntimeError)


class SaveError(RuntimeError):
    """The model's state cannot be saved; the message says why."""


def refuse_saves(loader: Any, engine: str) -> None:
    """Makes `loader.save_model(model, ...)` raise `SaveError` for a model with packed weights."""

    def save(original: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        packed = sum(is_attached(layer) for layer in model.modules())
        if packed:
            raise SaveError(
                f"{packed} linear layers have weights that HK packed for this machine; "
                f"{engine} could not load them again once saved"
            )
        return original(model, *args, **kwargs)

    wrap(loader, "save_model", save, static=True)
