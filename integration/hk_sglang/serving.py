"""The moment when a server's requests start to run, after which nothing is measured."""

from __future__ import annotations

from typing import Any

from sglang.srt.managers.scheduler import Scheduler

from hk_backend.engine import loggers
from hk_backend.engine.evidence import requests_run
from hk_backend.engine.loaded import model_is_loaded
from hk_backend.engine.patching import wrap

logger = loggers.of("sglang", "plugin")


def install() -> None:
    """Changes SGLang's scheduler; harmless to call again."""
    wrap(Scheduler, "run_event_loop", _run)


def _run(original: Any, scheduler: Any) -> Any:
    """Ends the measurements, as all models of the server are loaded.

    A draft model shares the server's time to measure.
    """
    model_is_loaded("SGLang", logger, scheduler.device)
    requests_run()
    return original(scheduler)
