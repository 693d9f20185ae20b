"""Log level for layers left to the engine: a warning if the user's named device computes none."""

from __future__ import annotations

import logging

from hk_backend.config import get_config


def level(served: int) -> int:
    """Log level of the line on layers left to the engine, given the number of layers HK serves."""
    named = get_config().device != "auto"
    return logging.WARNING if named and not served else logging.INFO
