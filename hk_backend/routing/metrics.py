"""The routing counters as Prometheus metrics, summed over the processes of one engine.

An engine computes in one process, answers `/metrics` in another, and may kill the first without
notice. So each computing process keeps its numbers in memory-mapped files of a shared directory,
as in prometheus_client's multiprocess mode. The process that is scraped sums them.

If that mode is on (`PROMETHEUS_MULTIPROC_DIR`), its directory is used, and prometheus_client's own
collector finds the files. Otherwise the engine's first process makes a directory, and children
inherit its path through the environment. A collector on the default registry reads it.

`hk_backend_calls_total{route, outcome, reason}`: layer calls.
`hk_backend_tokens_total{route, outcome, reason}`: tokens of those calls (attention: prefill's).
`hk_backend_layers_total{route, outcome, reason}`: layers of the models that were loaded.
`hk_backend_checked_calls_total{route}`: calls that HK_CHECK compared.
`hk_backend_unchecked_calls_total{route}`: calls that it could not compare, in graphs.
`hk_backend_check_error{route}`: the largest error that HK_CHECK found.

`outcome` is one of:

- served: HK computed the call.
- fallback: the engine computed it, for the given reason.
- dummy: profiling or warm-up, without a user's tokens.
- captured: HK's launches were captured in a graph, counted once however often it is replayed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from ctypes import c_double
from functools import cache
from typing import TYPE_CHECKING

from hk_backend.routing import metrics_directory
from hk_backend.routing.routes import Number, Outcome, Tally, routes

if TYPE_CHECKING:  # at run time imported on first use: see metrics_directory.py
    from prometheus_client import Metric
    from prometheus_client.mmap_dict import MmapedDict

CALLS, TOKENS, LAYERS, CHECKED, UNCHECKED, ERROR = (
    "hk_backend_calls",
    "hk_backend_tokens",
    "hk_backend_layers",
    "hk_backend_checked_calls",
    "hk_backend_unchecked_calls",
    "hk_backend_check_error",
)
HELP = {
    CALLS: "Layer calls of an HK route by outcome",
    TOKENS: "Tokens of an HK route by outcome, per layer call (attention: of prefill)",
    LAYERS: "Layers of loaded models that an HK route serves or leaves to the engine",
    CHECKED: "Layer calls that HK_CHECK compared with the reference",
    UNCHECKED: "Layer calls that HK_CHECK could not compare: captured in graphs",
    ERROR: "Largest error that HK_CHECK found",
}
COUNTERS, GAUGES = "counter_hk", "gauge_max_hk"
"""Prefixes of file names, by which prometheus_client knows a metric's kind and how to merge it."""
FILE_BYTES = 1 << 16

logger = logging.getLogger(__name__)


def count(route: str, outcome: Outcome, tokens: int, reason: str = "") -> None:
    """Counts one layer call of `route`, in this process and for `/metrics`."""
    tally_of(route, outcome, reason).add(tokens)


def tally_of(route: str, outcome: Outcome, reason: str = "") -> Tally:
    """The tally of such calls, whose numbers `/metrics` shows."""
    tally = routes.counters(route).tally(outcome, reason)
    if tally.shown is None:
        labels = (("outcome", outcome), ("reason", reason), ("route", route))
        calls, tokens = (_files.number(COUNTERS, metric, labels) for metric in (CALLS, TOKENS))
        if calls is not None and tokens is not None:
            tally.shown = calls, tokens
    return tally


def count_layer(route: str, reason: str = "") -> None:
    """Counts one layer of a loaded model that HK serves, or leaves to the engine for `reason`."""
    counters = routes.counters(route)
    if reason:
        counters.layers_left[reason] += 1
    else:
        counters.layers += 1
    outcome = "fallback" if reason else "served"
    number = counters.layers_left[reason] if reason else counters.layers
    labels = (("outcome", outcome), ("reason", reason), ("route", route))
    _files.write(COUNTERS, LAYERS, labels, number)


def count_check(route: str, error: float) -> None:
    """Counts one call of `route` that was compared with the reference."""
    counters = routes.counters(route)
    counters.checked_calls += 1
    counters.max_check_error = max(counters.max_check_error, error)
    labels = (("route", route),)
    _files.write(COUNTERS, CHECKED, labels, counters.checked_calls)
    _files.write(GAUGES, ERROR, labels, counters.max_check_error)


def count_unchecked(route: str) -> None:
    """Counts one call of `route` that could not be compared."""
    counters = routes.counters(route)
    counters.unchecked_calls += 1
    _files.write(COUNTERS, UNCHECKED, (("route", route),), counters.unchecked_calls)


def share() -> bool:
    """Makes the directory that child processes inherit, and registers a collector for it.

    Returns:
        whether this process is its engine's first (see `metrics_directory.share`).
    """
    from prometheus_client import REGISTRY

    if not any(isinstance(found, _Collector) for found in list(REGISTRY._collector_to_names)):
        REGISTRY.register(_Collector())
    return metrics_directory.share()


def processes() -> Iterator[tuple[int, list[Metric]]]:
    """Yields each computing process of this engine, and its metrics: `(process id, metrics)`."""
    from prometheus_client.multiprocess import MultiProcessCollector

    shared = metrics_directory.current()
    for counters in sorted(shared.glob(f"{COUNTERS}*.db")) if shared else []:
        process = counters.stem.removeprefix(COUNTERS)
        files = [counters, counters.with_name(f"{GAUGES}{process}.db")]
        if metrics_directory.is_ours(counters):
            found = [str(path) for path in files if path.exists()]
            yield int(process), list(MultiProcessCollector.merge(found))


class _Collector:
    """Sums the files of HK's own directory; prometheus_client reads its own directory itself."""

    def describe(self) -> Iterable[Metric]:
        return []  # registering must not read files

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.multiprocess import MultiProcessCollector

        own = metrics_directory.own()
        if own is None:
            return []
        try:
            collected: Iterable[Metric] = MultiProcessCollector(None, path=str(own)).collect()
        except (OSError, RuntimeError, ValueError) as error:  # the engine's own metrics must show
            logger.warning("hk_backend: counters not readable: %s", error)
            return []
        return collected


Labels = tuple[tuple[str, str], ...]


@cache
def _key(kind: str, metric: str, labels: Labels) -> str:
    from prometheus_client.mmap_dict import mmap_key

    sample = metric if kind == GAUGES else f"{metric}_total"
    names, texts = zip(*labels, strict=True)
    key: str = mmap_key(metric, sample, list(names), list(texts), HELP[metric])
    return key


class _WrittenByCall:
    """A number in a file, which prometheus_client's public calls read and write."""

    def __init__(self, values: MmapedDict, key: str) -> None:
        self._values, self._key = values, key

    @property
    def value(self) -> float:
        found: float = self._values.read_value(self._key)[0]
        return found

    @value.setter
    def value(self, value: float) -> None:
        self._values.write_value(self._key, value, 0.0)


class _Files:
    """The metrics files of this process, opened when first written. A forked child opens its
    own."""

    def __init__(self) -> None:
        self._open: dict[str, MmapedDict | None] = {}

    def forget(self) -> None:
        """Drops the open files in a forked child, as they are its parent's."""
        self._open = {}

    def values(self, kind: str) -> MmapedDict | None:
        """The file of `kind`, or None if there is no directory for it."""
        if kind not in self._open:
            self._open[kind] = self._make(kind)
        return self._open[kind]

    def number(self, kind: str, metric: str, labels: Labels) -> Number | None:
        """A number in the file, to be written in place; None if there is no file.

        A file that grows is mapped anew, and the number stays in the mapping that it was made in,
        of the same memory. Where prometheus_client keeps no such mapping, its own call writes.
        """
        values = self.values(kind)
        if values is None:
            return None
        key = _key(kind, metric, labels)
        values.read_value(key)  # makes room for it
        try:
            return c_double.from_buffer(values._m, values._positions[key])
        except (AttributeError, KeyError, TypeError, ValueError):  # private, so not in all versions
            return _WrittenByCall(values, key)

    def write(self, kind: str, metric: str, labels: Labels, value: float) -> None:
        values = self.values(kind)
        if values is not None:
            values.write_value(_key(kind, metric, labels), value, 0.0)

    def _make(self, kind: str) -> MmapedDict | None:
        from prometheus_client.mmap_dict import MmapedDict

        shared = metrics_directory.current()
        if shared is None:
            return None
        path = shared / f"{kind}{os.getpid()}.db"
        try:
            # reserve the page now: one that a full disk cannot back would kill the process later
            with path.open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, FILE_BYTES)
            return MmapedDict(str(path))
        except OSError as error:
            logger.warning("hk_backend: no counters of this process on /metrics: %s", error)
            return None


_files = _Files()


os.register_at_fork(after_in_child=_files.forget)
