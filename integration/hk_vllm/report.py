"""Counters in the log at shutdown: one line per process and route that computed something.

vLLM kills its computing processes as soon as it stops, so the engine's first process writes
these lines, from the files that hold the others' numbers (hk_backend.metrics).
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Iterable
from multiprocessing.util import Finalize

from prometheus_client import Metric
from prometheus_client.samples import Sample

from hk_backend import metrics

logger = logging.getLogger("vllm.hk_vllm.report")


def at_exit() -> None:
    """Log the counters of all processes when this one ends; for the engine's first process."""
    Finalize(None, _log_counters, args=(os.getpid(),), exitpriority=100)


def _log_counters(owner: int) -> None:
    if os.getpid() != owner:  # a forked child
        return
    for process, found in metrics.processes():
        for line in lines(found):
            logger.info("hk_backend: process %d: %s", process, line)


def lines(found: Iterable[Metric]) -> list[str]:
    """One line per route: `attention: 120 calls, 38400 prefill tokens by HK (100.0%); ...`."""
    samples: defaultdict[str, list[Sample]] = defaultdict(list)
    for metric in found:
        for sample in metric.samples:
            samples[sample.labels["route"]].append(sample)
    return [f"{route}: {_describe(of_route)}" for route, of_route in sorted(samples.items())]


def _describe(samples: list[Sample]) -> str:
    calls: dict[tuple[str, str], int] = {}
    tokens: dict[tuple[str, str], int] = {}
    checked = {metrics.CHECKED: 0.0, metrics.ERROR: 0.0}
    for sample in samples:
        name = sample.name.removesuffix("_total")
        if name in checked:
            checked[name] = sample.value
        else:
            outcome = sample.labels["outcome"], sample.labels["reason"]
            (calls if name == metrics.CALLS else tokens)[outcome] = int(sample.value)
    served, dummy = ("served", ""), ("dummy", "")
    fallbacks = sorted(set(calls) - {served, dummy})
    prefill = sum(tokens.values()) - tokens.get(dummy, 0)
    share = tokens.get(served, 0) / prefill if prefill else 1.0
    parts = [
        f"{calls.get(served, 0)} calls, {tokens.get(served, 0)} prefill tokens by HK ({share:.1%})"
    ]
    for key in fallbacks:
        parts.append(f"{calls[key]} calls, {tokens[key]} tokens by vLLM: {key[1]}")
    if dummy in calls:
        parts.append(f"{calls[dummy]} dummy calls")
    if checked[metrics.CHECKED]:
        parts.append(
            f"{checked[metrics.CHECKED]:.0f} calls checked, "
            f"largest error {checked[metrics.ERROR]:.2e}"
        )
    return "; ".join(parts)
