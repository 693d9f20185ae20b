"""Builds for graph capture, whose device metadata is not what the host's says.

ROCM_ATTN's writes 1 into every sequence length and 0 into every row start, on the device only.
A captured graph replays the parent's kernels with other numbers: HK may be in none.
"""

from __future__ import annotations

import pytest
import torch
from vllm.v1.attention.backend import AttentionCGSupport

from hk_backend.routing.routes import RouteCounters
from tests.integration.hk_vllm.attention.batch import Batch
from tests.integration.hk_vllm.rocm.parents import Parent
from tests.integration.hk_vllm.rocm.rocm_layer import rocm_layer
from tests.integration.shared.attention.rows import DECODE, Row

VERIFICATION = (Row(3, 40), Row(3, 21))
"""Drafts of two tokens: with speculation, a uniform decode batch that has a graph."""

pytestmark = pytest.mark.usefixtures("small")


@pytest.mark.parametrize("rows", [(DECODE, DECODE), VERIFICATION], ids=["decode", "verification"])
def test_capture_routes_nothing(
    parent: Parent, rows: tuple[Row, ...], counters: RouteCounters
) -> None:
    outputs = []
    for wrapped in (True, False):
        batch = Batch(rocm_layer(parent, wrapped=wrapped), rows)
        common = batch.common_metadata()
        metadata = batch.layer.builder.build_for_cudagraph_capture(common)
        if parent.member == "ROCM_ATTN":
            assert metadata.seq_lens.tolist() == [1, 1]
            assert common.query_start_loc.tolist() == [0, 0, 0]
        outputs.append(batch.forward(metadata))
    torch.testing.assert_close(*outputs, rtol=0, atol=0, equal_nan=True)
    assert (counters.served.calls, dict(counters.fallbacks)) == (0, {})


def test_a_batch_after_a_capture_is_routed(parent: Parent, counters: RouteCounters) -> None:
    """The builder that captured serves the next batch as any other."""
    batch = Batch(rocm_layer(parent, wrapped=True), (DECODE, Row(6, 41)))
    batch.layer.builder.build_for_cudagraph_capture(batch.common_metadata())
    batch.run_and_check()
    assert counters.served.tokens == 6


def test_graphs_are_for_uniform_batches_only(parent: Parent) -> None:
    supports = {}
    for wrapped in (True, False):
        layer = rocm_layer(parent, wrapped=wrapped)
        supports[wrapped] = layer.builder.get_cudagraph_support(
            layer.config, layer.builder.kv_cache_spec
        )
    limit = AttentionCGSupport.UNIFORM_BATCH
    assert supports[True].value == min(supports[False].value, limit.value)
