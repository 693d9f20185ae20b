"""The names of a checkpoint's tensors while vLLM loads it.

One that vLLM cannot load is named: its own checks are bare assertions. And whether a merged layer
came in shards is known from them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import torch
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

from hk_vllm.linear.shards import CheckpointError

MARK = "hk_original"

_loaded: set[str] = set()


def was_loaded(name: str) -> bool:
    """Whether the checkpoint that was loaded last holds this tensor.

    Models may rename what stands before a layer's number.
    """
    return _tail(name) in _loaded


def _tail(name: str) -> str:
    found = re.search(r"(?:^|\.)(\d+\..*)", name)
    return found[1] if found else name


def install() -> None:
    """Wrap vLLM's loader of checkpoints; harmless to call again."""
    if hasattr(DefaultModelLoader.load_weights, MARK):
        return
    get_all_weights = DefaultModelLoader.get_all_weights
    load_weights = DefaultModelLoader.load_weights
    current: list[tuple[str, torch.Tensor]] = []

    @functools.wraps(get_all_weights)
    def watched(self: Any, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.Tensor]]:
        _loaded.clear()
        for item in get_all_weights(self, *args, **kwargs):
            current[:] = [item]
            _loaded.add(_tail(item[0]))
            yield item
        current.clear()

    @functools.wraps(load_weights)
    def named(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return load_weights(self, *args, **kwargs)
        except (AssertionError, RuntimeError, ValueError, IndexError) as error:
            if not current or isinstance(error, CheckpointError) or not _of_shape(error):
                raise
            name, tensor = current[0]
            found = f"{tensor.dtype} {list(tensor.shape)}"
            why = str(error) or "its shape is not the layer's"
            raise CheckpointError(f"{name}: {found} cannot be loaded: {why}") from error
        finally:
            current.clear()

    setattr(named, MARK, load_weights)
    DefaultModelLoader.get_all_weights = watched
    DefaultModelLoader.load_weights = named


def _of_shape(error: Exception) -> bool:
    """Not of an operator that vLLM's own quantisation lacks on this platform."""
    said = any(word in str(error) for word in ("size of tensor", "dimension size", "shape"))
    return said or not isinstance(error, RuntimeError)
