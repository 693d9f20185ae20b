"""Makes vLLM's loader tell the names of tensors, and refuse to save a model with packed weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader
from vllm.model_executor.model_loader.tensorizer_loader import TensorizerLoader

from hk_backend.engine.linear.model_files import named_errors, refuse_saves, remember_names
from hk_backend.engine.patching import wrap


def install() -> None:
    """Changes vLLM's loaders; harmless to call again."""
    wrap(DefaultModelLoader, "get_all_weights", _watch)
    wrap(DefaultModelLoader, "load_weights", _load)
    for loader in (ShardedStateLoader, TensorizerLoader):
        refuse_saves(loader, "vLLM")


def _watch(original: Any, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.Tensor]]:
    return remember_names(original(*args, **kwargs))


def _load(original: Any, *args: Any, **kwargs: Any) -> Any:
    with named_errors():
        return original(*args, **kwargs)
