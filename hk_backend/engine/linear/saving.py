"""Refuses to save a loaded model with packed weights.

Engines save a model's state as it is in memory. They would load such a folder into layers that are
not packed yet, which have no place for packed tensors.
"""

from __future__ import annotations

import functools
from typing import Any

from hk_backend.engine.linear.route import is_attached


class SaveError(RuntimeError):
    """The model's state cannot be saved; the message says why."""


def refusing(save: Any, engine: str) -> Any:
    """Wraps `save(model, ...)` so that it raises `SaveError` for a model with packed weights."""

    @functools.wraps(save)
    def save_model(model: Any, *args: Any, **kwargs: Any) -> Any:
        packed = sum(is_attached(layer) for layer in model.modules())
        if packed:
            raise SaveError(
                f"{packed} linear layers have weights that HK packed for this machine; "
                f"{engine} could not load them again once saved"
            )
        return save(model, *args, **kwargs)

    return save_model
