"""Batches and calls that are the parent's: it computes them, and each is counted by its reason.

Counted are layer calls and prefill tokens. Where the parent can compute the batch its result is
checked against the reference; where it could not either, that it was called with the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_vllm.attention import builder as builder_module
from hk_vllm.attention.batch import refuse_batch

from hk_backend.engine.rows import SPECULATIVE
from hk_backend.routing.routes import RouteCounters, Tally
from tests.integration.hk_vllm.attention.batch import (
    MIXED,
    PREFILL,
    Batch,
    Layer,
    vllm_config,
    with_drafts,
)
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.rows import DRAFTS, EXTEND, FRESH, SHORT_EXTEND, VERIFY, Row


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"causal": torch.ones(3, dtype=torch.int32)}, "not causal"),
        ({"causal": False}, "not causal"),
        ({"mm_req_doc_ranges": {1: [(0, 4)]}}, "bidirectional ranges in a multimodal prompt"),
        ({"rswa_prefix_lens": torch.tensor([1, 2, 3])}, "reference sliding window"),
        ({"encoder_seq_lens": torch.tensor([1, 2, 3])}, "cross attention"),
    ],
    ids=["causal per request", "bidirectional", "multimodal", "rswa", "encoder"],
)
def test_batches_only_the_parent_understands(
    layer: Layer,
    counters: RouteCounters,
    parent_calls: list[Any],
    changes: dict[str, Any],
    why: str,
) -> None:
    batch = Batch(layer, MIXED)
    metadata = batch.build(**changes)
    batch.forward(metadata)
    fell_back(counters, why, PREFILL)
    assert parent_calls == [metadata]


def test_without_multimodal_ranges_a_batch_is_routed(layer: Layer, counters: RouteCounters) -> None:
    batch = Batch(layer, MIXED)
    batch.run(mm_req_doc_ranges={})
    batch.check()
    assert counters.served.tokens == PREFILL


def test_lengths_only_on_the_device(layer: Layer, counters: RouteCounters) -> None:
    """Reading them would stall the stream; on CPU tensors there is nothing to stall."""
    batch = Batch(layer, MIXED)
    common = batch.common_metadata(seq_lens_cpu_upper_bound=None)
    batch.forward(layer.builder.build(0, common))
    batch.check()
    assert counters.served.tokens == PREFILL
    common.seq_lens = SimpleNamespace(device=torch.device("cuda"))
    why = refuse_batch(common)
    assert why == "no sequence lengths on the host"


@pytest.mark.parametrize(
    "more", [{"method": "draft_model"}, {"method": "eagle", "parallel_drafting": True}], ids=str
)
def test_drafters_that_add_slots(
    hk_cpu: Any, counters: RouteCounters, more: dict[str, Any]
) -> None:
    """Their first pass has tokens that no engine's numbers tell from a prompt's."""
    layer = Layer(hk_cpu, config=with_drafts(vllm_config(), DRAFTS, **more))
    batch = Batch(layer, MIXED)
    batch.forward(layer.builder.build_for_drafting(batch.common_metadata(), 0))
    batch.check()
    fell_back(counters, "drafting", PREFILL)


def test_adaptive_verification(hk_cpu: Any, counters: RouteCounters) -> None:
    """The device trims drafts: where its rows begin is not what the host believes."""
    config = with_drafts(vllm_config(), drafts=3, enable_adaptive_verification=True)
    Batch(Layer(hk_cpu, config=config), MIXED).run_and_check()
    fell_back(counters, "adaptive verification", PREFILL)


def test_speculative_verification(hk_cpu: Any, counters: RouteCounters) -> None:
    layer = Layer(hk_cpu, config=with_drafts(vllm_config(), DRAFTS))
    Batch(layer, [VERIFY, Row(3, 61, verifies=True)]).run_and_check()
    fell_back(counters, SPECULATIVE, 7)


def test_prefills_beside_verification(hk_cpu: Any, counters: RouteCounters) -> None:
    """Prompts as short as drafts, and the last tokens of one: each row is what it is."""
    layer = Layer(hk_cpu, config=with_drafts(vllm_config(), DRAFTS))
    Batch(layer, [Row(3), VERIFY, SHORT_EXTEND]).run_and_check()
    assert counters.served == Tally(1, 6)
    assert dict(counters.fallbacks) == {SPECULATIVE: Tally(1, VERIFY.query)}


@pytest.mark.parametrize("build", ["drafting", "fast"])
@pytest.mark.parametrize("method", ["eagle", "mtp"])
def test_the_first_pass_of_a_drafter(
    hk_cpu: Any, counters: RouteCounters, build: str, method: str
) -> None:
    """Over the target's tokens, and without a word on which rows are prompts'."""
    layer = Layer(hk_cpu, config=with_drafts(vllm_config(), DRAFTS, method))
    batch = Batch(layer, [FRESH, VERIFY, EXTEND, SHORT_EXTEND])
    common = batch.common_metadata(is_prefilling=None)
    if build == "drafting":
        metadata = layer.builder.build_for_drafting(common, 0)
    else:
        metadata = layer.builder.build(0, common, fast_build=True)
    batch.forward(metadata)
    batch.check()
    assert counters.served == Tally(1, FRESH.query + EXTEND.query)
    assert counters.fallbacks[SPECULATIVE].tokens == VERIFY.query + SHORT_EXTEND.query


@pytest.mark.parametrize(
    ("parallel", "why"),
    [
        ({"decode_context_parallel_size": 2}, "decode context parallelism"),
        ({"prefill_context_parallel_size": 2}, "prefill context parallelism"),
        ({"enable_dbo": True, "data_parallel_size": 2}, "batches split into microbatches"),
    ],
    ids=["dcp", "pcp", "microbatches"],
)
def test_parallel_configurations(
    layer: Layer, counters: RouteCounters, parallel: dict[str, Any], why: str
) -> None:
    config = vllm_config(**parallel)
    layer.builder._hk_refusal = builder_module.refuse_parallel(config.parallel_config)
    Batch(layer, MIXED).run_and_check()
    fell_back(counters, why, PREFILL)


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
