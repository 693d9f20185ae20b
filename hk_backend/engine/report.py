"""Counters in the log at shutdown: one line per process and route that computed something.

An engine kills its computing processes as soon as it stops. So its first process writes these
lines, from the files with the others' numbers (hk_backend.routing.metrics). It imports that module
only then: see metrics_directory.py.
"""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.samples import Sample


def at_exit(engine: str, logger: logging.Logger) -> None:
    """Logs the counters of all processes when this one ends; for the engine's first process."""
    # This must run before the exit function of weakref, which removes the engine's temporary
    # directories. The function registered last runs first.
    weakref.finalize(logger, int)
    atexit.register(_log_counters, os.getpid(), engine, logger)


def _log_counters(owner: int, engine: str, logger: logging.Logger) -> None:
    if os.getpid() != owner:  # a forked child
        return
    from hk_backend.routing import metrics

    for process, found in metrics.processes():
        for line in lines(found, engine):
            logger.info("hk_backend: process %d: %s", process, line)


def lines(found: Iterable[Metric], engine: str) -> list[str]:
    """One line per route, with its calls or layers.

    Examples: `attention: 120 calls, 38400 prefill tokens by HK (100.0%); ...`, `decode: 30 layers
    by HK; 900 calls, 900 tokens by HK (100.0%)`, `linear: 121 layers by HK; 2 layers by vLLM: a
    weight in torch.int8; 3600 calls, ...`.
    """
    samples: defaultdict[str, list[Sample]] = defaultdict(list)
    for metric in found:
        for sample in metric.samples:
            samples[sample.labels["route"]].append(sample)
    return [
        f"{route}: {_describe(route, of_route, engine)}"
        for route, of_route in sorted(samples.items())
    ]


SERVED, DUMMY, CAPTURED = ("served", ""), ("dummy", ""), ("captured", "")
Counts = dict[tuple[str, str], int]
"""Numbers by outcome and reason."""


def _describe(route: str, samples: list[Sample], engine: str) -> str:
    from hk_backend.routing import metrics

    counts: dict[str, Counts] = {metrics.CALLS: {}, metrics.TOKENS: {}, metrics.LAYERS: {}}
    checked = {metrics.CHECKED: 0.0, metrics.UNCHECKED: 0.0, metrics.ERROR: 0.0}
    for sample in samples:
        name = sample.name.removesuffix("_total")
        if name in checked:
            checked[name] = sample.value
        else:
            counts[name][sample.labels["outcome"], sample.labels["reason"]] = int(sample.value)
    parts = _layers(counts[metrics.LAYERS], engine)
    kind = "prefill " if route == "attention" else ""
    other = "the reference" if route == "linear" else engine
    if counts[metrics.CALLS] or not parts:
        parts += _calls(counts[metrics.CALLS], counts[metrics.TOKENS], kind, other)
    if checked[metrics.CHECKED]:
        parts.append(
            f"{checked[metrics.CHECKED]:.0f} calls checked, "
            f"largest error {checked[metrics.ERROR]:.2e}"
        )
    if checked[metrics.UNCHECKED]:
        parts.append(f"{checked[metrics.UNCHECKED]:.0f} calls not checked: captured in graphs")
    return "; ".join(parts)


def _layers(layers: Counts, engine: str) -> list[str]:
    """Parts of the line on layers; empty for a route that is not decided layer by layer."""
    if not layers:
        return []
    left = [f"{layers[key]} layers by {engine}: {key[1]}" for key in sorted(set(layers) - {SERVED})]
    return [f"{layers.get(SERVED, 0)} layers by HK", *left]


def _calls(calls: Counts, tokens: Counts, kind: str, other: str) -> list[str]:
    """Parts of the line on calls; if the route is decided layer by layer, calls of HK's layers."""
    total = sum(number for key, number in tokens.items() if key not in (DUMMY, CAPTURED))
    number = tokens.get(SERVED, 0)
    share = f" ({number / total:.1%})" if total else ""
    parts = [f"{calls.get(SERVED, 0)} calls, {number} {kind}tokens by HK{share}"]
    for key in sorted(set(calls) - {SERVED, DUMMY, CAPTURED}):
        parts.append(f"{calls[key]} calls, {tokens[key]} tokens by {other}: {key[1]}")
    if CAPTURED in calls:
        parts.append(f"{calls[CAPTURED]} calls captured in graphs, whose replays are not counted")
    if DUMMY in calls:
        parts.append(f"{calls[DUMMY]} dummy calls")
    return parts
