"""The plugins' loggers, all named `<engine>.hk_<engine>.<part>`.

The engine's own logger is their parent, so its handlers and levels apply. The parts are plugin
(routes and patches that are installed), attention, and linear.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Literal

from hk_backend.config import get_config

Part = Literal["plugin", "attention", "linear"]


def of(engine: Literal["vllm", "sglang"], part: Part) -> logging.Logger:
    """The logger of one part of a plugin. Imports nothing of the engine."""
    return logging.getLogger(f"{engine}.hk_{engine}.{part}")


@cache
def info_once(logger: logging.Logger, message: str, argument: str) -> None:
    """Logs a message once in this process, as every layer would log it again."""
    logger.info(message, argument)


def level(served: int) -> int:
    """Log level of the line on layers left to the engine, given the number of layers HK serves.

    It is a warning if the user has named a device, and that device computes none.
    """
    named = get_config().device != "auto"
    return logging.WARNING if named and not served else logging.INFO
