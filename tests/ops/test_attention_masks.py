"""Masks, soft cap, sinks, ALiBi, scale: each alone, then rows that see exactly what they must."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from hk_backend import reference
from hk_backend.ops import attention_prefill
from tests.ops.cases import Case, arguments, make
from tests.ops.oracle import check
from tests.ops.strategies import DTYPES

RAGGED = ((70, 70), (1, 90), (0, 4), (33, 300), (5, 9))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [1, 2, 15, 16, 17, 64, 255, 256, 257, 299, 300, 10**6])
def test_sliding_window(window: int, causal: bool, dtype: torch.dtype) -> None:
    check(make(Case(lengths=RAGGED, sliding_window=window, causal=causal, dtype=dtype)))


HEADS = [{"num_heads": heads, "num_kv_heads": kv} for heads, kv in ((1, 1), (8, 2), (9, 3))]
FEATURES: list[dict[str, Any]] = [
    *({"logits_soft_cap": cap} for cap in (0.0, 0.1, 5.0, 30.0, 50.0)),
    *({"logits_soft_cap": cap, "magnitude": 0.01} for cap in (0.0, 0.1, 5.0, 30.0, 50.0)),
    *({"logits_soft_cap": cap, "magnitude": 10.0} for cap in (0.0, 0.1, 5.0, 30.0, 50.0)),
    *({"alibi": True, "causal": causal, **heads} for causal in (True, False) for heads in HEADS),
    *({"sinks": True, **heads} for heads in HEADS),
    *({"scale": scale} for scale in (1.0, 0.01, 0.0, -0.2)),
]


@pytest.mark.parametrize("feature", FEATURES, ids=str)
def test_each_feature(feature: dict[str, Any], isa: str) -> None:
    check(make(Case(lengths=RAGGED, **feature)))


@pytest.mark.parametrize("sink", [-math.inf, -1e4, -100.0, 0.0, 100.0, 1e4])
def test_extreme_sinks(sink: float, isa: str) -> None:
    call = make(Case(lengths=RAGGED))
    check(call | {"sinks": torch.tensor([sink, 0.5])})


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_a_sink_of_infinity_takes_all_weight(device: str, isa: str) -> None:
    """Of its own head's rows."""

    def run(sink: float) -> tuple[torch.Tensor, torch.Tensor]:
        call = make(Case(lengths=RAGGED)) | {"sinks": torch.tensor([sink, 0.5])}
        if device == "reference":
            return reference.attention_prefill(arguments(call))
        out, lse = attention_prefill(**call, return_lse=True)
        return out, lse

    out, lse = run(math.inf)
    assert (out[:, 0] == 0).all()
    assert (lse[0] == math.inf).all()
    other, other_lse = run(2.0)
    assert torch.equal(out[:, 1], other[:, 1])
    assert torch.equal(lse[1], other_lse[1])


@pytest.mark.parametrize("sinks", [False, True])
def test_rows_that_see_nothing(sinks: bool, isa: str) -> None:
    """Exactly zeros; the log-sum-exp is minus infinity, or the sink's logit if there is one."""
    case = Case(lengths=((9, 4), (3, 0), (2, 2)), sinks=sinks, num_heads=4, num_kv_heads=2)
    call = make(case)
    out, lse = attention_prefill(**call, return_lse=True)
    for first, last in ((0, 5), (9, 12)):
        assert torch.equal(out[first:last], torch.zeros_like(out[first:last]))
        if sinks:
            want = call["sinks"][:, None].expand(-1, last - first)
            torch.testing.assert_close(lse[:, first:last], want, rtol=2**-22, atol=0)
        else:
            assert (lse[:, first:last] == -math.inf).all()
    assert (out[5:9] != 0).any(-1).all()


@pytest.mark.parametrize("layout", [None, "HND, two tensors"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 1, 3, 130])
def test_which_keys_a_row_sees(
    window: int | None, causal: bool, layout: str | None, isa: str
) -> None:
    """Equal scores, and value j is the unit vector j: the output spells out the mask itself."""
    queries, keys = 150, 256
    case = Case(lengths=((queries, keys),), head_size=256, causal=causal, sliding_window=window)
    call = make(case.but(num_heads=1))
    identity = torch.eye(keys)[:, None, :]
    call["query"].zero_()
    call["value"] = identity
    if layout is not None:
        paged = make(case.but(num_heads=1, layout=layout, block_size=16))
        write(paged, identity)
        call = paged | {"query": call["query"]}
    out = attention_prefill(**call)
    assert isinstance(out, torch.Tensor)
    want = torch.zeros(queries, keys)
    for i in range(queries):
        position = keys - queries + i
        for j in range(keys):
            behind = position - j
            if (behind >= 0 or not causal) and (window is None or abs(behind) < window):
                want[i, j] = 1.0
    assert torch.equal(out[:, 0] != 0, want != 0)
    torch.testing.assert_close(out[:, 0], want / want.sum(1, keepdim=True), rtol=1e-5, atol=0)


def write(paged: dict[str, object], values: torch.Tensor) -> None:
    """Put `values` into the HND cache of a one-request call."""
    cache = paged["paged_kv"].value.tensor  # type: ignore[attr-defined]
    blocks = paged["block_table"][0]  # type: ignore[index]
    for token, row in enumerate(values):
        cache[blocks[token // cache.shape[2]], :, token % cache.shape[2]] = row


@pytest.mark.parametrize("heads", [(6, 6), (6, 3), (6, 2), (6, 1)])
def test_which_kv_head_a_query_head_reads(heads: tuple[int, int], isa: str) -> None:
    num_heads, num_kv_heads = heads
    call = make(Case(lengths=((30, 30),), num_heads=num_heads, num_kv_heads=num_kv_heads))
    call["value"] = torch.arange(1.0, num_kv_heads + 1)[None, :, None].expand(30, -1, 64)
    out = attention_prefill(**call)
    for head in range(num_heads):
        want = 1.0 + head // (num_heads // num_kv_heads)
        assert out[:, head].sub(want).abs().max() <= 1e-5 * want
