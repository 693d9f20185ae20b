"""The engine's own kernels, as far as an installed plugin can name them: timed beside HK's."""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Callable

import torch

logger = logging.getLogger(__name__)

GROUP = "hk_backend.stock_linear"
"""Of entry points: functions from a kind of layer (`gemm_formats.LAYERS`) to a name and what
multiplies rows [m, k] with a weight [n, k]; None for a kind that they cannot say it of."""
Multiply = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def stock_of(format: str) -> tuple[str, Multiply] | None:
    """The first plugin's answer; an engine that does not load is one line of the log."""
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            found: tuple[str, Multiply] | None = entry.load()(format)
        except Exception as error:  # whatever an engine's import can raise
            logger.warning("hk_backend: %s: %s: %s", entry.value, type(error).__name__, error)
            continue
        if found is not None:
            return found
    return None
