"""Each ROCm backend's own builder, cache, writer and implementation, one layer with HK around it:
batches in two orders of rows, graph capture, and the contest with the parent.

Model Runner V2, the default wherever Triton is, sorts decode rows to the front and no further:
[decode, fresh, extend] is a batch like any other.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hk_vllm.attention import contest
from vllm.v1.attention.backend import AttentionCGSupport

from hk_backend.routing.routes import RouteCounters
from tests.integration.hk_vllm.attention.batch import Batch
from tests.integration.hk_vllm.rocm.parents import Parent
from tests.integration.hk_vllm.rocm.rocm_layer import rocm_layer, round_to_fp8
from tests.integration.hk_vllm.rocm.torch_kernels import FP8
from tests.integration.shared.attention.expected import check_rows
from tests.integration.shared.attention.rows import (
    DECODE,
    EXTEND,
    FRESH,
    PADDING,
    Row,
)
from tests.integration.shared.evidence import Bench

Rows = tuple[Row, ...]

LONG_EXTEND, LONG_FRESH = Row(70, 90), Row(50)
V2_ORDER: Rows = (DECODE, DECODE, LONG_FRESH, EXTEND, FRESH, LONG_EXTEND, PADDING)
SORTED: Rows = (DECODE, DECODE, LONG_EXTEND, EXTEND, FRESH)

pytestmark = pytest.mark.usefixtures("small")


def letters(rows: Rows) -> str:
    """D for decode, E for an extend, F for fresh, 0 for padding."""
    names = {DECODE: "D", PADDING: "0"}
    return "".join(names.get(row, "FE"[row.cached > 0]) for row in rows)


@pytest.mark.parametrize(
    ("dtype", "cache", "device"),
    [
        (torch.float32, "auto", "cpu"),
        (torch.bfloat16, "auto", "cpu"),
        (torch.bfloat16, "fp8", "cpu"),
        (torch.bfloat16, "fp8", "emulated:gfx950"),
    ],
)
@pytest.mark.parametrize("rows", [V2_ORDER, SORTED], ids=letters)
def test_orders(
    parent: Parent,
    rows: Rows,
    dtype: torch.dtype,
    cache: str,
    device: str,
    counters: RouteCounters,
    environment: Callable[..., None],
) -> None:
    """x, the channels that a ROCm cache keeps together, is 16 bytes: 4 values or 8; 16 of an FP8
    cache, which has the scales that the parent's own kernels apply."""
    environment(HK_DEVICE=device)
    batch = Batch(rocm_layer(parent, wrapped=True, dtype=dtype, cache_dtype=cache), rows)
    if cache == "fp8":
        round_to_fp8(batch, parent)
    batch.run_and_check()
    assert counters.routed_share() == 1.0
    batch.output *= 1.02
    with pytest.raises(AssertionError, match="out of bounds"):
        batch.check()


@pytest.mark.parametrize("rows", [(DECODE, DECODE), (Row(3, 40), Row(3, 21))], ids=letters)
def test_capture_routes_nothing(parent: Parent, rows: Rows, counters: RouteCounters) -> None:
    """Of decode rows, and of rows that verify two drafts, which have a graph, too. ROCM_ATTN's
    build writes 1 into every length and 0 into every start, on the device only. The next batch is
    served as any other."""
    outputs, supports = [], []
    for wrapped in (False, True):
        layer = rocm_layer(parent, wrapped=wrapped)
        batch = Batch(layer, rows)
        common = batch.common_metadata()
        metadata = layer.builder.build_for_cudagraph_capture(common)
        if parent.member == "ROCM_ATTN":
            assert metadata.seq_lens.tolist() == [1, 1]
            assert common.query_start_loc.tolist() == [0, 0, 0]
        outputs.append(batch.forward(metadata))
        asked = layer.config, layer.builder.kv_cache_spec
        supports.append(layer.builder.get_cudagraph_support(*asked).value)
    torch.testing.assert_close(*outputs, rtol=0, atol=0, equal_nan=True)
    assert (counters.served.calls, dict(counters.fallbacks)) == (0, {})
    assert supports[1] == min(supports[0], AttentionCGSupport.UNIFORM_BATCH.value)
    Batch(layer, (DECODE, EXTEND)).run_and_check()
    assert counters.served.tokens == EXTEND.query


@pytest.mark.parametrize("cache", ["auto", "fp8"])
def test_contest(bench: Bench, parent: Parent, monkeypatch: pytest.MonkeyPatch, cache: str) -> None:
    """Both sides compute prompts of several blocks, the last one not full. Over FP8 HK reads what
    was projected, and so do some parents; others read what the cache holds."""
    monkeypatch.setattr(contest, "PROMPTS", (5, 70))
    layer = rocm_layer(parent, wrapped=True, cache_dtype=cache)
    assert ("fp8 cache" in layer.impl._hk_decision.kind.layer) == (cache == "fp8")
    assert bench.rows == [(5, 70)]
    for tokens, (ours, theirs) in bench.outputs.items():
        query, key, value = contest.tensors(layer.impl, tokens)
        check_rows(ours, [(query, key, value)])
        projected = parent.member in ("ROCM_ATTN", "ROCM_AITER_FA") and not parent.shuffled
        if cache == "fp8" and not projected:
            key, value = (each.to(FP8).to(each.dtype) for each in (key, value))
        check_rows(theirs, [(query, key, value)])
        with pytest.raises(AssertionError):
            check_rows(theirs, [(query, key, value)], sliding_window=4)
