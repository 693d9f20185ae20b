"""Counters in the log at shutdown: one line per process that had routed layers."""

from __future__ import annotations

import os
from multiprocessing.util import Finalize
from typing import Any

from vllm.logger import init_logger

from hk_backend.routing import routes

logger = init_logger("vllm.hk_vllm.report")
_registered_in: int | None = None


def at_exit() -> None:
    """Log the counters when this process ends (once per process, however often it is asked for).

    `Finalize` also runs in children of multiprocessing, where atexit may not.
    """
    global _registered_in  # noqa: PLW0603
    if _registered_in != os.getpid():
        _registered_in = os.getpid()
        Finalize(None, log_counters, exitpriority=100)


def log_counters() -> None:
    for route, counters in routes.report().items():
        logger.info("hk_backend: %s", describe(route, counters))


def describe(route: str, counters: dict[str, Any]) -> str:
    """One line: `attention: 120 calls, 38400 prefill tokens by HK (100.0%); ...`."""
    line = (
        f"{route}: {counters['calls']} calls, {counters['tokens']} prefill tokens by HK "
        f"({counters['routed_share']:.1%})"
    )
    for why, tally in counters["fallbacks"].items():
        line += f"; by vLLM {tally['calls']} calls, {tally['tokens']} tokens: {why}"
    if counters["dummy_calls"]:
        line += f"; {counters['dummy_calls']} dummy calls"
    if counters["checked_calls"]:
        line += (
            f"; {counters['checked_calls']} calls checked, "
            f"largest error {counters['max_check_error']:.2e}"
        )
    if not counters["on"]:
        line += f"; switched off: {counters['why']}"
    return line
