"""Waits until servers that were just measured no longer use the cores."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

WINDOW_SECONDS = 0.2
IDLE_SHARE = 0.05
"""Processor time of all servers, as a share of a window, below which they count as idle."""
MOST_SECONDS = 5.0


def wait_until_idle(processes: Iterable[int], most: float = MOST_SECONDS) -> bool:
    """Wait until processes and all that they started are idle, at most `most` seconds.

    After each request, vLLM's workers poll for the next one without a pause for a second
    (`SpinCondition` in vllm/distributed/device_communicators/shm_broadcast.py, 0.32). On a core
    that both servers use, polling took up to two thirds of the other server's time.

    Args:
        processes: ids of the servers' first processes.

    Returns:
        whether the processes became idle.
    """
    servers = list(processes)
    deadline = time.monotonic() + most
    before = processor_seconds(servers)
    while time.monotonic() < deadline:
        time.sleep(WINDOW_SECONDS)
        now = processor_seconds(servers)
        if now - before < IDLE_SHARE * WINDOW_SECONDS:
            return True
        before = now
    return False


def processor_seconds(processes: Iterable[int]) -> float:
    """Processor time of the processes and their living descendants."""
    seconds = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            first = psutil.Process(process)
            for each in (first, *first.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    times = each.cpu_times()
                    seconds += times.user + times.system
    return seconds
