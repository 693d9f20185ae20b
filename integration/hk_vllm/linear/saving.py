"""A loaded model that vLLM is to save: refused where it holds packed weights.

vLLM saves a model's state as it is in memory (`save_sharded_state`, `save_tensorized_model`). It
loads such a folder into layers that are not packed yet, which have no place for what HK packed.
"""

from __future__ import annotations

import functools
from typing import Any

from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader
from vllm.model_executor.model_loader.tensorizer_loader import TensorizerLoader

from hk_backend.routed_linear import is_attached

MARK = "hk_original"


class SaveError(RuntimeError):
    """The model's state cannot be saved; the message says why."""


def install() -> None:
    """Wrap vLLM's two ways of saving; harmless to call again."""
    for loader in (ShardedStateLoader, TensorizerLoader):
        save = loader.save_model
        if not hasattr(save, MARK):
            loader.save_model = staticmethod(_checked(save))


def _checked(save: Any) -> Any:
    @functools.wraps(save)
    def save_model(model: Any, *args: Any, **kwargs: Any) -> Any:
        packed = sum(is_attached(layer) for layer in model.modules())
        if packed:
            raise SaveError(
                f"{packed} linear layers hold weights that HK packed for this machine: what vLLM "
                "saved of them it could not load again"
            )
        return save(model, *args, **kwargs)

    setattr(save_model, MARK, save)
    return save_model
