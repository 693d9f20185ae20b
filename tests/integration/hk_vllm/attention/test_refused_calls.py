"""Calls that are the parent's, of a layer and a batch that HK would serve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hk_backend.routing.routes import RouteCounters, Tally
from tests.integration.hk_vllm.attention.batch import (
    MIXED,
    PREFILL,
    Batch,
    Layer,
)
from tests.integration.shared.attention.counted import fell_back


def test_no_metadata_is_a_dummy_run(
    layer: Layer, counters: RouteCounters, parent_calls: list[Any]
) -> None:
    batch = Batch(layer, MIXED)
    batch.forward(None)
    assert counters.dummy == Tally(1, len(batch.query))
    assert not counters.fallbacks
    assert parent_calls == [None]


def test_metadata_that_lost_its_plan(layer: Layer, counters: RouteCounters) -> None:
    """vLLM's fast prefill copies the fields that the parent's dataclass declares."""
    batch = Batch(layer, MIXED)
    metadata = batch.build()
    del metadata.hk
    batch.forward(metadata)
    batch.check()
    fell_back(counters, "metadata rebuilt by the engine", len(batch.query))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (lambda b: {"key": None, "value": None}, "no keys handed over"),
        (lambda b: {"query": b.query.to(torch.float8_e4m3fn)}, "query in torch.float8_e4m3fn"),
        (
            lambda b: {"output_scale": torch.ones(1)},
            "output quantised in the attention kernel",
        ),
        (
            lambda b: {"output_block_scale": torch.ones(1)},
            "output quantised in the attention kernel",
        ),
    ],
    ids=["no key", "fp8 query", "output scale", "output block scale"],
)
def test_calls_only_the_parent_understands(
    layer: Layer,
    counters: RouteCounters,
    parent_calls: list[Any],
    changes: Callable[[Batch], dict[str, Any]],
    why: str,
) -> None:
    batch = Batch(layer, MIXED)
    metadata = batch.build()
    batch.forward(metadata, **changes(batch))
    fell_back(counters, why, PREFILL)
    assert parent_calls == [metadata]
    assert batch.output.isnan().all()


def test_values_of_another_size(
    layer: Layer, counters: RouteCounters, parent_calls: list[Any]
) -> None:
    layer.module.head_size_v = 128
    Batch(layer, MIXED).run()
    fell_back(counters, "values of 128 channels, keys of 64", PREFILL)
    assert len(parent_calls) == 1
