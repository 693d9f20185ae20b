"""The plugins' loggers, all under one scheme: `<engine>.hk_<engine>.<part>`.

The engine's own logger stands above them, so its handlers and levels apply. Parts: plugin (what is
put in place), attention, linear.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Literal

Part = Literal["plugin", "attention", "linear"]


def of(engine: Literal["vllm", "sglang"], part: Part) -> logging.Logger:
    """The logger of a plugin's part; nothing of the engine is imported."""
    return logging.getLogger(f"{engine}.hk_{engine}.{part}")


@cache
def info_once(logger: logging.Logger, message: str, argument: str) -> None:
    """Say it once in this process: layers say the same of themselves."""
    logger.info(message, argument)
