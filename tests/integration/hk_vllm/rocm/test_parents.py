"""Each ROCm backend's own builder, cache, writer and implementation, one layer with HK around it:
batches in every order of rows, graph capture, and the contest with the parent.

Model Runner V2, the default wherever Triton is, sorts decode rows to the front and no further:
[decode, fresh, extend] is a batch like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from random import Random
from typing import Any

import pytest
import torch
from hk_vllm.attention import contest
from vllm.v1.attention.backend import AttentionCGSupport

from hk_backend.engine.rows import SPECULATIVE
from hk_backend.routing.routes import RouteCounters
from tests.integration.hk_vllm.attention.batch import Batch, Layer
from tests.integration.hk_vllm.rocm.parents import LAYER_PARENTS, Parent
from tests.integration.hk_vllm.rocm.rocm_layer import rocm_layer, round_to_fp8
from tests.integration.hk_vllm.rocm.torch_kernels import FP8
from tests.integration.shared.attention.expected import check_rows
from tests.integration.shared.attention.rows import (
    DECODE,
    DRAFTS,
    EXTEND,
    FRESH,
    PADDING,
    SHORT_EXTEND,
    VERIFY,
    Row,
    prefill_tokens,
)
from tests.integration.shared.evidence import Bench

Rows = tuple[Row, ...]

LONG_EXTEND, LONG_FRESH = Row(70, 90), Row(50)
V2_ORDER: Rows = (DECODE, DECODE, LONG_FRESH, EXTEND, FRESH, LONG_EXTEND, PADDING)
SORTED: Rows = (DECODE, DECODE, LONG_EXTEND, EXTEND, FRESH)
SPECULATING: Rows = (VERIFY, FRESH, VERIFY, DECODE, SHORT_EXTEND, LONG_EXTEND)
"""As EAGLE's batches are, in no order."""
ORDERS: list[Rows] = [
    *permutations((DECODE, FRESH, EXTEND)),
    *Random(15).sample([*permutations((DECODE, VERIFY, FRESH, EXTEND, SHORT_EXTEND))], 6),
    V2_ORDER,
    SORTED,
    SPECULATING,
    (FRESH, FRESH),
]

pytestmark = pytest.mark.usefixtures("small")


def letters(rows: Rows) -> str:
    """D for decode, V for verification, S for a short extend, E, F for fresh, 0 for padding."""
    names = {DECODE: "D", VERIFY: "V", SHORT_EXTEND: "S", PADDING: "0"}
    return "".join(names.get(row, "FE"[row.cached > 0]) for row in rows)


def over(orders: Sequence[Rows]) -> Any:
    """Each parent with each of the orders that vLLM has it compute."""
    cases = [
        pytest.param(parent, rows, id=f"{parent}-{letters(rows)}")
        for parent in LAYER_PARENTS
        for rows in orders
        if VERIFY not in rows or not parent.shuffled  # vLLM: no shuffled cache with speculation
    ]
    return pytest.mark.parametrize(("parent", "rows"), cases, indirect=["parent"])


def speculating(parent: Parent, *, wrapped: bool) -> Layer:
    """Of a server that speculates, if its parent can."""
    return rocm_layer(parent, wrapped=wrapped, drafts=0 if parent.shuffled else DRAFTS)


@over(ORDERS)
def test_every_order(parent: Parent, rows: Rows, counters: RouteCounters) -> None:
    """Every row is exact in any order, HK's and the parent's, and HK has all that is a prompt's."""
    Batch(speculating(parent, wrapped=True), rows).run_and_check()
    verified = sum(row.query for row in rows if row.verifies)
    assert counters.served.tokens == prefill_tokens(rows) - verified
    assert {why: tally.tokens for why, tally in counters.fallbacks.items()} == (
        {SPECULATIVE: verified} if verified else {}
    )


@pytest.mark.parametrize(
    ("cache", "device"), [("auto", "cpu"), ("fp8", "cpu"), ("fp8", "emulated:gfx950")]
)
@pytest.mark.parametrize("rows", [V2_ORDER, SORTED], ids=letters)
def test_half_precision(
    parent: Parent,
    rows: Rows,
    cache: str,
    device: str,
    counters: RouteCounters,
    environment: Callable[..., None],
) -> None:
    """x, the channels that a ROCm cache keeps together, is 16 bytes: 8 values, not 4; 16 of an FP8
    cache, which has the scales that the parent's own kernels apply."""
    environment(HK_DEVICE=device)
    batch = Batch(rocm_layer(parent, wrapped=True, dtype=torch.bfloat16, cache_dtype=cache), rows)
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
