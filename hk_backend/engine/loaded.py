"""The moment when an engine's model is loaded, and its weights stay where they are."""

from __future__ import annotations

import logging

from hk_backend.engine.evidence import say_measured
from hk_backend.engine.host_memory import keep_freed_memory


def model_is_loaded(engine: str, log: logging.Logger, device_type: str) -> None:
    """Logs what was measured for the model, and prepares this process to compute.

    Harmless to call again, as several parts of an engine may notice the moment.

    Args:
        device_type: torch's name for the device that the engine computes on.
    """
    say_measured(engine, log)
    if device_type == "cpu":
        keep_freed_memory()
