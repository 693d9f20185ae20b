"""Soft-capped scores on the attention kernels that have them, against float64.

Caps have any size; scores are near zero, at the cap and past float32. The tests of all kernels
cover the rest of these kernels, with a cap (attention_launch.py).
"""

from __future__ import annotations

import math
from typing import Any

import torch

from hk_backend.kernels import KernelEntry
from hk_backend.kernels.masks import CAPPED
from tests.kernels.attention_launch import Launch, bits, kernels, passes
from tests.ops.cases import Call, Case, int32, make
from tests.ops.oracle import EXP_ERROR, ROUNDOFF, U

CAPS = (1e-39, 1e-3, 0.1, 1.5, 30.0, 50.0, 1024.0)
LENGTHS = ((70, 330), (0, 9), (40, 0), (300, 300), (5, 9))


def capped(**axes: Any) -> Any:
    return kernels(mask=(CAPPED,), **axes)


@capped(cap=CAPS, magnitude=(0.01, 1.5, 12.0))
def test_caps_of_any_size(entry: KernelEntry, cap: float, magnitude: float) -> None:
    passes(Launch(entry, Case(LENGTHS, 4, 2, logits_soft_cap=cap, magnitude=magnitude)))


@capped(heads=((32, 8), (8, 1), (9, 3)), scale=(None, 0.0, -0.3, 3.0))
def test_heads_and_scales(entry: KernelEntry, heads: tuple[int, int], scale: float | None) -> None:
    passes(Launch(entry, Case(((33, 97),), *heads, scale=scale, logits_soft_cap=2.0)))


@capped(window=(1, 33, 64, 100), sinks=(True, False))
def test_with_windows_and_sinks(entry: KernelEntry, window: int, sinks: bool) -> None:
    lengths = ((70, 330), (5, 46), (129, 129), (3, 0))
    passes(Launch(entry, Case(lengths, 4, 2, sliding_window=window, sinks=sinks)))


@capped(keys=("packed",), cap=(1.5, 50.0))
def test_a_lone_key_s_log_sum_exp_is_its_capped_score(entry: KernelEntry, cap: float) -> None:
    """Scores reach from far below the cap to far beyond it. The error is what the oracle allows an
    exponential, and six roundings of the score's factors. tanh passes on less than half of the cap
    of those."""
    scores = torch.cat([torch.tensor([0.0]), 2.0 ** torch.arange(-16, 15)])
    rows = torch.cat([scores, -scores])
    outcome = Launch.of(entry, own_scores(entry, rows, cap)).run()
    assert outcome.findings == []
    exact = cap * torch.tanh(rows.double() / cap)
    assert (outcome.lse[0] - exact).abs().max() <= (EXP_ERROR + 3 * U) * cap


@capped(keys=("packed",))
def test_scores_past_float32_are_at_the_cap(entry: KernelEntry) -> None:
    """Plus and minus infinity have weights, e^2cap apart; a key that no row sees has none."""
    cap, keys = 0.5, 130
    signs = torch.where(torch.arange(keys) % 3 == 0, 1.0, -1.0)
    call = own_scores(entry, torch.ones(1), cap)
    call["query"] = torch.zeros_like(call["query"][:1].expand(2, -1, -1)).contiguous()
    call["query"][:, :, 0] = torch.tensor([[1.0], [-1.0]])
    shape = (keys, 1, call["query"].shape[2])
    random = torch.Generator().manual_seed(0)
    call["key"] = torch.zeros(shape, dtype=call["query"].dtype)
    call["key"][:, 0, 0] = signs * math.inf
    call["value"] = torch.randn(shape, generator=random).to(call["query"].dtype)
    call |= {"causal": False, "query_start_loc": int32([0, 2]), "key_start_loc": int32([0, keys])}
    call["sliding_window"] = None
    call["key"][:, 0, 1:] = 0
    outcome = Launch.of(entry, call).run()
    assert outcome.findings == []
    values = call["value"][:, 0].double()
    for row, sign in enumerate((1, -1)):
        weights = torch.softmax(cap * sign * signs.double(), 0)
        sizes = weights @ values.abs()
        bound = 2 * ROUNDOFF[call["query"].dtype] * sizes + 8 * EXP_ERROR * sizes
        assert ((outcome.out[row, 0].double() - weights @ values).abs() <= bound).all()
        exact = torch.logsumexp(cap * sign * signs.double(), 0)
        assert abs(float(outcome.lse[0, row]) - float(exact)) <= keys * U * float(exact)


@capped(keys=("packed",), poison=(math.nan, math.inf))
def test_nan_stays_in_its_row(entry: KernelEntry, poison: float) -> None:
    """A NaN score is no score at the cap. (A query of infinity makes NaN of keys of both signs.)"""
    call = make(Launch.fitting(entry, Case(((70, 70),), causal=False)))
    clean = passes(Launch.of(entry, call))
    call["query"][40] = poison
    outcome = Launch.of(entry, call).run()
    assert outcome.out[40].isnan().all()
    others = [row for row in range(70) if row != 40]
    assert torch.equal(bits(outcome.out[others]), bits(clean.out[others]))


def own_scores(entry: KernelEntry, scores: torch.Tensor, cap: float) -> Call:
    """A call of one head whose row i sees its own key alone, with the score `scores[i]`."""
    rows = len(scores)
    case = Case(((rows, rows),), 1, scale=1.0, sliding_window=1, logits_soft_cap=cap)
    call = make(Launch.fitting(entry, case))
    call["query"].zero_()
    call["query"][:, 0, 0] = 1.0
    call["key"].zero_()
    call["key"][:, 0, 0] = scores.to(call["key"].dtype)
    assert torch.equal(call["key"][:, 0, 0].float(), scores), "exact in 16 bits"
    return call
