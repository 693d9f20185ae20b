"""Warns if a device that the user named computes nothing."""

from __future__ import annotations

import logging

from hk_backend.config import get_config


def level(served: int) -> int:
    """Of the line on layers that are left to the engine, of which HK computes `served` others."""
    named = get_config().device != "auto"
    return logging.WARNING if named and not served else logging.INFO
