"""The moment from which a server's requests run: nothing is measured any more."""

from __future__ import annotations

from typing import Any

from sglang.srt.managers.scheduler import Scheduler

from hk_backend.engine.evidence import requests_run
from hk_backend.engine.patching import wrap


def install() -> None:
    """Change SGLang's scheduler; harmless to call again."""
    wrap(Scheduler, "run_event_loop", _run)


def _run(original: Any, scheduler: Any) -> Any:
    requests_run()
    return original(scheduler)
