"""Makes vLLM's checkpoint loader tell the names of the tensors that it loads."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

from hk_backend.engine.linear.tensor_names import named_errors, watched
from hk_backend.engine.patching import MARK


def install() -> None:
    """Wraps vLLM's loader of checkpoints; harmless to call again."""
    if hasattr(DefaultModelLoader.load_weights, MARK):
        return
    get_all_weights = DefaultModelLoader.get_all_weights
    load_weights = DefaultModelLoader.load_weights

    @functools.wraps(get_all_weights)
    def watch(self: Any, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.Tensor]]:
        return watched(get_all_weights(self, *args, **kwargs))

    @functools.wraps(load_weights)
    def named(self: Any, *args: Any, **kwargs: Any) -> Any:
        with named_errors():
            return load_weights(self, *args, **kwargs)

    setattr(named, MARK, load_weights)
    DefaultModelLoader.get_all_weights = watch
    DefaultModelLoader.load_weights = named
