"""The routing counters as Prometheus metrics, summed over the processes of one engine.

An engine computes in one process and answers `/metrics` in another. As in prometheus_client's
multiprocess mode, each computing process keeps its numbers in a memory-mapped file of a shared
directory, and the process that is scraped sums the files. If that mode is on
(`PROMETHEUS_MULTIPROC_DIR`), its directory is used and its own collector finds the files.
Otherwise the first process makes a directory, children inherit its path through the
environment, and a collector on the default registry reads it.

    hk_backend_calls_total{route, outcome, reason}    layer calls
    hk_backend_tokens_total{route, outcome, reason}   prefill tokens of those calls

`outcome`: served (by HK), fallback (to the engine, with its reason) or dummy (profiling,
warm-up and capture runs: not a user's tokens).
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from multiprocessing import parent_process
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Literal

from prometheus_client import REGISTRY, Metric
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.multiprocess import MultiProcessCollector

from hk_backend.routing import Tally, routes

Outcome = Literal["served", "fallback", "dummy"]

DIRECTORY_VARIABLE = "HK_METRICS_DIR"
"""Set by the first process for its children; not meant for users."""
HELP = {
    "hk_backend_calls": "Layer calls of an HK route by outcome",
    "hk_backend_tokens": "Prefill tokens of an HK route by outcome, per layer call",
}
LABELS = ["route", "outcome", "reason"]
FILE_BYTES = 1 << 16

logger = logging.getLogger(__name__)


def count(route: str, outcome: Outcome, tokens: int, reason: str = "") -> None:
    """Count one layer call of `route`: in this process, and for `/metrics`."""
    counters = routes.counters(route)
    if outcome == "served":
        tally = counters.served
    elif outcome == "fallback":
        tally = counters.fallbacks[reason]
    else:
        tally = counters.dummy
    tally.add(tokens)
    _published.write(route, outcome, reason, tally)


def share() -> None:
    """Make the directory that child processes inherit, and show it on the default registry.

    To be called in every process of an engine, before it starts others. A process that
    multiprocessing started is part of its parent's engine and keeps what it inherited; any
    other is an engine of its own, whatever its environment says.
    """
    if parent_process() is None and _shared_by != os.getpid():
        _make_directory()
    if not any(isinstance(found, _Collector) for found in list(REGISTRY._collector_to_names)):
        REGISTRY.register(_Collector())


_shared_by = 0


def _make_directory() -> None:
    global _shared_by  # noqa: PLW0603
    _shared_by = os.getpid()
    try:
        directory = tempfile.mkdtemp(prefix="hk_backend_metrics_")
    except OSError as error:
        os.environ.pop(DIRECTORY_VARIABLE, None)
        logger.warning("hk_backend: no counters on /metrics: %s", error)
        return
    os.environ[DIRECTORY_VARIABLE] = directory
    Finalize(None, _remove, args=(directory, os.getpid()), exitpriority=0)


def _directory() -> str | None:
    """Where this process keeps its file, if anyone will read it."""
    shared = os.environ.get("PROMETHEUS_MULTIPROC_DIR") or os.environ.get(DIRECTORY_VARIABLE)
    return shared if shared and Path(shared).is_dir() else None


def _remove(directory: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked child
        shutil.rmtree(directory, ignore_errors=True)


class _Collector:
    """Sums the files of our own directory (not prometheus_client's: it reads that itself)."""

    def describe(self) -> Iterable[Metric]:
        return []  # registering must not read files

    def collect(self) -> Iterable[Metric]:
        directory = os.environ.get(DIRECTORY_VARIABLE)
        if not directory or not Path(directory).is_dir():
            return []
        try:
            collected: Iterable[Metric] = MultiProcessCollector(None, path=directory).collect()
        except (OSError, RuntimeError, ValueError) as error:  # the engine's own metrics must show
            logger.warning("hk_backend: counters not readable: %s", error)
            return []
        return collected


class _Published:
    """This process's file, opened at the first count; a forked child opens its own."""

    def __init__(self) -> None:
        self._process = 0
        self._values: MmapedDict | None = None
        self._keys: dict[tuple[str, str, str], tuple[str, str]] = {}

    def write(self, route: str, outcome: str, reason: str, tally: Tally) -> None:
        if self._process != os.getpid():
            self._open()
        if self._values is None:
            return
        labels = (route, outcome, reason)
        keys = self._keys.get(labels)
        if keys is None:
            calls, tokens = (
                mmap_key(name, f"{name}_total", LABELS, labels, text) for name, text in HELP.items()
            )
            keys = self._keys[labels] = calls, tokens
        now = time.time()
        self._values.write_value(keys[0], tally.calls, now)
        self._values.write_value(keys[1], tally.tokens, now)

    def _open(self) -> None:
        self._process = os.getpid()
        self._values = None
        directory = _directory()
        if directory is None:
            return
        path = Path(directory) / f"counter_hk{self._process}.db"
        try:
            # a mapped page that a full disk cannot back would kill the process: reserve it now
            with path.open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, FILE_BYTES)
            self._values = MmapedDict(str(path))
        except OSError as error:
            logger.warning("hk_backend: no metrics from this process: %s", error)


_published = _Published()
