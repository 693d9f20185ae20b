"""HK's modelled times for a linear layer on an emulated GPU, where nothing can be measured."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from hk_backend.devices import device_for
from hk_backend.engine.evidence import MODELLED, Decision
from hk_backend.engine.evidence.decision import duration
from hk_backend.ops import LinearRequest

logger = logging.getLogger(__name__)

ROWS = (1, 64, 4096)
"""Numbers of rows in the log line: decoding, a short prompt, a long one."""


@cache
def say_modelled(decision: Decision, request: LinearRequest) -> None:
    """Logs HK's modelled times for a kind of layer that is served without a measurement.

    One line per kind; other decisions log nothing.
    """
    if decision.note != MODELLED:
        return
    device: Any = device_for(request.device_type)
    times = (f"{rows}: {duration(device.linear_microseconds(request, rows))}" for rows in ROWS)
    said = "hk_backend: %s is served: %s; HK by rows: %s"
    logger.info(said, decision.kind, decision.note, ", ".join(times))
