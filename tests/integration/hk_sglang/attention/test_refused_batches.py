"""Batches that are the parent's, who computes: each is counted by its reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hk_sglang.attention.prefill import NO_PLAN
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from hk_backend.routing.routes import RouteCounters, Tally
from tests.integration.hk_sglang.attention.batch import (
    MIXED,
    PREFILL,
    Batch,
    Server,
)
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.rows import FRESH


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("TARGET_VERIFY", "speculative verification"),
        ("DRAFT_EXTEND_V2", "drafting"),
        ("SPLIT_PREFILL", "prefill split over layers"),
        ("DLLM_EXTEND", "diffusion"),
        ("PREBUILT", "forward mode PREBUILT"),
    ],
)
def test_modes(counters: RouteCounters, mode: str, why: str) -> None:
    Batch(Server(), MIXED, mode).check()
    fell_back(counters, why, PREFILL)


def test_verification_without_lengths_on_the_host(counters: RouteCounters) -> None:
    """Counted by its queries."""
    batch = Batch(Server(), MIXED, "TARGET_VERIFY")
    batch.metadata.extend_seq_lens_cpu = None
    batch.check()
    fell_back(counters, "speculative verification", batch.num_tokens)


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("multi_item_delimiter_indices", [torch.tensor([1])], "several items scored in one prompt"),
        ("decision_layouts", [None, [1]], "several decisions in one prompt"),
        ("attn_cp_metadata", object(), "context parallelism"),
        ("tbo_parent_token_range", (0, 3), "two-batch overlap"),
        ("mha_return_lse", True, "log-sum-exp asked for"),
        ("extend_prefix_lens_cpu", None, "no sequence lengths on the host"),
    ],
)
def test_batches(counters: RouteCounters, field: str, value: Any, why: str) -> None:
    batch = Batch(Server(), MIXED)
    setattr(batch.metadata, field, value)
    batch.check()
    fell_back(counters, why, PREFILL)


def test_an_encoder_in_front(counters: RouteCounters) -> None:
    batch = Batch(Server(), [FRESH])
    batch.metadata.encoder_lens = torch.tensor([0])
    batch.check()
    fell_back(counters, "an encoder's tokens in front of the prompt", FRESH.query)


def test_speculative_requests_in_a_mixed_batch(counters: RouteCounters) -> None:
    """SGLang puts them into one as decode rows, whose drafts it leaves out: the parent's."""
    server = Server()
    batch = Batch(server, MIXED)
    batch.metadata.spec_algorithm = SpeculativeAlgorithm.EAGLE
    batch.check()
    assert counters.served == Tally(1, PREFILL)
    assert not counters.fallbacks


def test_metadata_of_another_batch(counters: RouteCounters) -> None:
    """A batch for which no metadata was made is computed by the parent, never with another's."""
    server = Server()
    server.backend.init_forward_metadata(Batch(server, [FRESH]).metadata)
    batch = Batch(server, MIXED)
    found = batch.call()
    torch.testing.assert_close(found.double(), batch.expected(), rtol=2e-5, atol=2e-5)
    fell_back(counters, NO_PLAN, batch.num_tokens)
