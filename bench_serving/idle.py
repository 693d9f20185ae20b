"""Waiting until servers that were just measured leave the cores to the next one."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

WINDOW_SECONDS = 0.2
IDLE_SHARE = 0.05
"""Processor time of all servers within a window, as a share of it, below which they are idle."""
MOST_SECONDS = 5.0


def wait_until_idle(processes: Iterable[int], most: float = MOST_SECONDS) -> bool:
    """Wait until processes and all that they started are idle, at most `most` seconds.

    vLLM's workers look for the next request without a pause for a second after each one
    (`SpinCondition` in vllm/distributed/device_communicators/shm_broadcast.py, 0.32). On a core
    that both servers use, that took up to two thirds of the other's time.

    Args:
        processes: ids of the servers' first processes.

    Returns:
        whether they became idle.
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
