"""Counts of a layer's calls, by the plan of its step."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hk_backend.engine.batch_plan import Batch, BatchPlan, plan_batch
from hk_backend.routing import metrics
from hk_backend.routing.routes import routes


@pytest.fixture(autouse=True)
def own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setattr(metrics, "_files", metrics._Files())


def mixed() -> BatchPlan:
    """Two decode rows and a prompt of 5 tokens, all of them HK's."""
    batch = Batch(
        np.array([0, 1, 2, 7]),
        np.array([4, 9, 5]),
        torch.tensor([4, 9, 5]),
        lambda rows, longest: torch.zeros(2, 1, dtype=torch.int32),
    )
    plan = plan_batch(batch, why_not_decode=lambda requests, longest: "")
    assert plan is not None
    return plan


def shown() -> dict[tuple[str, ...], tuple[float, float]]:
    """Calls and tokens on `/metrics`, by route, outcome and reason."""
    [(_, found)] = metrics.processes()
    numbers: dict[tuple[str, ...], dict[str, float]] = {}
    for sample in (sample for metric in found for sample in metric.samples):
        labels = tuple(sample.labels[name] for name in ("route", "outcome", "reason"))
        numbers.setdefault(labels, {})[sample.name] = sample.value
    names = f"{metrics.CALLS}_total", f"{metrics.TOKENS}_total"
    return {labels: (of[names[0]], of[names[1]]) for labels, of in numbers.items()}


def test_every_layer_counts_for_both_routes() -> None:
    """A call that HK could not compute is no served one, before it and after it."""
    plan = mixed()
    for why in ("", "", "an error", ""):
        plan.count(why, 7)
        report = routes.report()
    assert shown() == {
        ("attention", "served", ""): (3, 15),
        ("decode", "served", ""): (3, 6),
        ("attention", "fallback", "an error"): (1, 5),
        ("decode", "fallback", "an error"): (1, 2),
    }
    assert [report[route]["tokens"] for route in ("attention", "decode")] == [15, 6]


def test_a_copy_of_a_plan_counts_as_what_it_is() -> None:
    """A contest's calls are dummies, and so are a graph's warm-ups before its capture."""
    plan = mixed()
    plan.count("", 7)
    replace(plan, dummy=True).count("", 7)
    graph = replace(plan, mine=None, captured=True)
    for captured in (False, True):
        graph.count("", 2, captured)
    assert shown() == {
        ("attention", "served", ""): (1, 5),
        ("decode", "served", ""): (1, 2),
        ("attention", "dummy", ""): (1, 5),
        ("decode", "dummy", ""): (2, 4),
        ("decode", "captured", ""): (1, 2),
    }


def test_numbers_move_on_in_a_file_that_has_grown(tmp_path: Path) -> None:
    plan = mixed()
    plan.count("", 7)
    [file] = tmp_path.iterdir()
    before = file.stat().st_size
    for number in range(300):
        metrics.count("linear", "fallback", 1, f"reason {number}")
    plan.count("", 7)
    assert file.stat().st_size > before
    found = shown()
    assert found["attention", "served", ""] == (2, 10)
    assert found["linear", "fallback", "reason 299"] == (1, 1)


class PublicCalls:
    """A file of metrics with the calls that prometheus_client documents, and such private fields.

    The package keeps other private fields in another version.
    """

    def __init__(self, file: Any, private: dict[str, Any]) -> None:
        self.read_value, self.write_value = file.read_value, file.write_value
        vars(self).update(private)


@pytest.mark.parametrize(
    "private",
    [
        {},
        {"_m": bytearray(64)},
        {"_m": bytearray(64), "_positions": {}},
        {"_m": bytes(64), "_positions": defaultdict(int)},
        {"_m": bytearray(64), "_positions": defaultdict(lambda: 60)},
    ],
    ids=["no mapping", "no positions", "other keys", "read only", "past the end"],
)
def test_another_version_of_the_metrics_client(
    private: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's own call writes what cannot be written in place, and no count is lost."""
    make = metrics._Files._make
    monkeypatch.setattr(
        metrics._Files, "_make", lambda self, kind: PublicCalls(make(self, kind), private)
    )
    plan = mixed()
    for why in ("", "an error", ""):
        plan.count(why, 7)
    assert shown() == {
        ("attention", "served", ""): (2, 10),
        ("decode", "served", ""): (2, 4),
        ("attention", "fallback", "an error"): (1, 5),
        ("decode", "fallback", "an error"): (1, 2),
    }
    numbers = routes.counters("attention").served.shown
    assert numbers is not None
    assert [number.value for number in numbers] == [2, 10]
