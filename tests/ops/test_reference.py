"""The oracle itself: against loops over single numbers, and against torch's own attention."""

from __future__ import annotations

import math

import pytest
import torch

from hk_backend import reference
from hk_backend.reference.attention import requests
from tests.ops.cases import Call, Case, arguments, make
from tests.ops.layouts import LAYOUTS
from tests.ops.strategies import DTYPES, FP8_DTYPES

# One request of a few tokens; the loops below are slow.
SMALL = Case(lengths=((6, 6),), head_size=8, dtype=torch.float64)
LOOPED = {
    "causal": SMALL,
    "not causal": SMALL.but(causal=False),
    "extend": SMALL.but(lengths=((3, 9),)),
    "more queries than keys": SMALL.but(lengths=((5, 3),)),
    "more queries than keys, not causal": SMALL.but(lengths=((5, 3),), causal=False),
    "no keys": SMALL.but(lengths=((2, 0),)),
    "no keys but a sink": SMALL.but(lengths=((2, 0),), sinks=True),
    "several requests": SMALL.but(lengths=((2, 4), (0, 3), (1, 1), (0, 0), (3, 3))),
    "window": SMALL.but(lengths=((6, 9),), sliding_window=3),
    "window of one": SMALL.but(lengths=((6, 9),), sliding_window=1),
    "window, not causal": SMALL.but(lengths=((4, 11),), sliding_window=2, causal=False),
    "soft cap": SMALL.but(logits_soft_cap=1.1),
    "alibi": SMALL.but(lengths=((3, 7),), alibi=True, num_heads=4),
    "alibi, not causal": SMALL.but(lengths=((3, 7),), alibi=True, causal=False),
    "sinks": SMALL.but(sinks=True),
    "scale": SMALL.but(scale=-0.3),
    "scales": SMALL.but(k_scale="per head", v_scale="per head", num_heads=6, num_kv_heads=3),
    "one scale": SMALL.but(k_scale="one", v_scale="one", num_heads=4, num_kv_heads=2),
    "number scales": SMALL.but(k_scale="number", v_scale="number"),
    "everything": SMALL.but(
        lengths=((5, 8), (2, 2)),
        num_heads=4,
        num_kv_heads=2,
        sliding_window=4,
        logits_soft_cap=2.0,
        alibi=True,
        sinks=True,
        scale=0.4,
        k_scale="per head",
        v_scale="number",
    ),
}


@pytest.mark.parametrize("case", LOOPED.values(), ids=LOOPED)
def test_equals_loops(case: Case) -> None:
    call = make(case)
    out, lse = reference.attention_prefill(arguments(call))
    queries = call["query"].tolist()
    starts = call["query_start_loc"].tolist()
    key_starts = call.get("key_start_loc", call["query_start_loc"]).tolist()
    for request in range(len(starts) - 1):
        keys = slice(key_starts[request], key_starts[request + 1])
        k, v = call["key"][keys].tolist(), call["value"][keys].tolist()
        for i in range(starts[request], starts[request + 1]):
            position = len(k) - (starts[request + 1] - i)
            for head in range(case.num_heads):
                row, total = loop_over_keys(call, queries[i][head], k, v, position, head)
                assert out[i, head].tolist() == pytest.approx(row, rel=1e-12, abs=1e-13)
                assert lse[head, i].item() == pytest.approx(total, rel=1e-12, abs=1e-13)


def loop_over_keys(
    call: Call,
    query: list[float],
    keys: list[list[list[float]]],
    values: list[list[list[float]]],
    position: int,
    head: int,
) -> tuple[list[float], float]:
    """One row of attention and its log-sum-exp by nothing but loops over Python floats."""
    if not keys:
        sink = -math.inf if call["sinks"] is None else call["sinks"][head].item()
        return [0.0] * len(query), sink
    kv_head = head * len(keys[0]) // call["query"].shape[1]
    scale = 1 / math.sqrt(len(query)) if call["scale"] is None else call["scale"]
    window, cap = call["sliding_window"], call["logits_soft_cap"]
    scores: dict[int, float] = {}
    for j, key in enumerate(keys):
        if (call["causal"] and j > position) or (window and abs(position - j) >= window):
            continue
        products = [a * b for a, b in zip(query, key[kv_head], strict=True)]
        score = math.fsum(products) * of_head(call["k_scale"], kv_head) * scale
        if cap:
            score = cap * math.tanh(score / cap)
        if call["alibi_slopes"] is not None:
            score += call["alibi_slopes"][head].item() * (j - position)
        scores[j] = score
    terms = list(scores.values())
    if call["sinks"] is not None:
        terms.append(call["sinks"][head].item())
    if not terms:
        return [0.0] * len(query), -math.inf
    total = math.log(math.fsum(math.exp(term) for term in terms))
    weights = {j: math.exp(score - total) for j, score in scores.items()}
    factor = of_head(call["v_scale"], kv_head)
    row = [
        math.fsum(weight * factor * values[j][kv_head][c] for j, weight in weights.items())
        for c in range(len(query))
    ]
    return row, total


def of_head(scale: float | torch.Tensor, kv_head: int) -> float:
    if isinstance(scale, torch.Tensor):
        return float(scale[kv_head % len(scale)])
    return scale


@pytest.mark.parametrize("block_size", [1, 5, 16])
@pytest.mark.parametrize("dtype", [*DTYPES, *FP8_DTYPES])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gathers_every_layout(layout: str, dtype: torch.dtype, block_size: int) -> None:
    if not LAYOUTS[layout].fits(block_size, 16, dtype):
        block_size = 16
    case = Case(lengths=((3, 20), (2, 2), (0, 7), (1, 33)), num_heads=4, num_kv_heads=2)
    case = case.but(head_size=16, dtype=torch.float32, kv_dtype=dtype, block_size=block_size)
    packed, paged = make(case), make(case.but(layout=layout))
    read = [list(requests(arguments(call))) for call in (packed, paged)]
    assert len(read[0]) == len(read[1]) == 3
    for (tokens, *wanted), (same_tokens, *found) in zip(*read, strict=True):
        assert tokens == same_tokens
        for a, b in zip(wanted, found, strict=True):
            assert torch.equal(a.view(torch.uint8), b.contiguous().view(torch.uint8))


def test_merge_of_split_keys_is_the_whole() -> None:
    case = Case(lengths=((8, 30),), causal=False, dtype=torch.float64)
    call = make(case)
    halves = []
    for keys in (slice(0, 11), slice(11, 30)):
        part = {"key": call["key"][keys], "value": call["value"][keys]}
        starts = {"key_start_loc": torch.tensor([0, len(part["key"])])}
        halves += reference.attention_prefill(arguments(call | part | starts))
    out, lse = reference.merge_attention(*halves)
    want, want_lse = reference.attention_prefill(arguments(call))
    torch.testing.assert_close(out, want, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(lse, want_lse, rtol=1e-12, atol=1e-13)
