"""The names of a checkpoint's tensors while an engine loads it.

Errors can then name a tensor that the engine cannot load, as its own checks are bare assertions.
The names also tell whether a merged layer came in shards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from hk_backend.engine.linear.shards import CheckpointError

_loaded: set[str] = set()
_current: list[tuple[str, torch.Tensor]] = []


def was_loaded(name: str) -> bool:
    """Whether the checkpoint that was loaded last holds this tensor.

    The part of the name before a layer's number does not count, as models may rename it.
    """
    return _tail(name) in _loaded


def _tail(name: str) -> str:
    found = re.search(r"(?:^|\.)(\d+\..*)", name)
    return found[1] if found else name


def watched(tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields a checkpoint's tensors by name, unchanged, and remembers them."""
    _loaded.clear()
    for item in tensors:
        _current[:] = [item]
        _loaded.add(_tail(item[0]))
        yield item
    _current.clear()


@contextmanager
def named_errors() -> Iterator[None]:
    """Context for the loading of `watched` tensors, so that errors name them.

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
    """Whether an error is about a shape, rather than an operator that the platform lacks."""
    said = any(word in str(error) for word in ("size of tensor", "dimension size", "shape"))
    return said or not isinstance(error, RuntimeError)
