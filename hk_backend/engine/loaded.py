"""The moment at which an engine's model is loaded, and its weights are where they stay."""

from __future__ import annotations

import logging

from hk_backend.engine.evidence import say_measured
from hk_backend.engine.host_memory import keep_freed_memory


def model_is_loaded(engine: str, log: logging.Logger, device_type: str) -> None:
    """Log what was measured for the model, and prepare this process to compute.

    Harmless to call again: several parts of an engine may see the moment.

    Args:
        device_type: torch's name for the device that the engine computes on.
    """
    say_measured(engine, log)
    if device_type == "cpu":
        keep_freed_memory()
