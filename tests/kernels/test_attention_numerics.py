"""Numbers of the shipped attention kernels: maxima, infinities, NaN, and outliers."""

from __future__ import annotations

import math

import torch

from hk_backend.kernels import KernelEntry
from hk_backend.kernels.masks import ALIBI, NO_MASK, WINDOW
from tests.kernels.attention_launch import Launch, bits, kernels, passes
from tests.ops.cases import Call, Case, int32, make


@kernels(by_type=True, keys=("packed",), step=(0.25, 4.0, 64.0), direction=(1, -1))
def test_maxima_that_move(entry: KernelEntry, direction: int, step: float) -> None:
    """Scores rise with every key, every tile, or every fifth tile: the output is rescaled or
    not."""
    keys = torch.arange(700)
    rows = [keys % 64, keys // 64, keys // 320 * 5, keys // 16]
    passes(Launch.of(entry, call_with_scores(entry, direction * step * torch.stack(rows))))


@kernels(by_type=True, keys=("packed",), jump=(7.9, 8.1, 100.0, 3e4))
def test_one_key_far_above_the_rest(entry: KernelEntry, jump: float) -> None:
    """The rise is around 2^8, which a stale maximum is allowed, and far beyond."""
    places = (0, 1, 31, 32, 63, 64, 255, 256, 319, 320, 599)
    scores = torch.zeros(len(places), 600)
    for row, place in enumerate(places):
        scores[row, place] = jump
    passes(Launch.of(entry, call_with_scores(entry, scores)))
    passes(Launch.of(entry, call_with_scores(entry, -scores)))


@kernels(
    by_type=True,
    mask=(NO_MASK, WINDOW, ALIBI),
    keys=("packed",),
    hidden=(1, 63, 64, 65, 128, 299, 300),
)
def test_scores_of_minus_infinity(entry: KernelEntry, hidden: int) -> None:
    """The first keys, the last keys, then all have a score of minus infinity: no weight, and no NaN
    from inf - inf."""
    scores = torch.arange(300.0).remainder(7).repeat(2, 1)
    scores[0, :hidden] = -math.inf
    scores[1, 300 - hidden :] = -math.inf
    call = call_with_scores(entry, scores.clamp(min=-1.0))
    # a key of minus infinity in its own channel; zeros elsewhere would make NaN of the other rows
    call["query"] = call["query"][:1]
    call["query_start_loc"] = int32([0, 1])
    call["key"][scores[0] == -math.inf, 0, 0] = -math.inf
    call["query"][:, :, 1:] = 1.0
    passes(Launch.of(entry, call))


@kernels(by_type=True, keys=("packed",))
def test_infinity_and_nan_stay_in_their_row(entry: KernelEntry) -> None:
    """A row whose scores have no softmax says so; its neighbours are exact."""
    case = Case(lengths=((70, 70),), causal=False)
    for poison in (math.nan, math.inf):
        call = make(Launch.fitting(entry, case))
        call["query"][40] = poison
        outcome = Launch.of(entry, call).run()
        assert outcome.findings == []
        assert outcome.out[40].isnan().all()
        call["query"][40] = 0
        clean = passes(Launch.of(entry, call))
        others = [row for row in range(70) if row != 40]
        assert torch.equal(bits(outcome.out[others]), bits(clean.out[others]))


@kernels(by_type=True, keys=("packed",))
def test_outliers(entry: KernelEntry) -> None:
    """A few channels and a few tokens are far larger than the rest, as in real models."""
    call = make(Launch.fitting(entry, Case(lengths=((130, 330),), num_heads=4, num_kv_heads=2)))
    call["key"][:, :, 5] *= 30
    call["key"][0] *= 10
    call["value"][0] *= 1e-3
    call["value"][:, :, 7] *= 1000
    passes(Launch.of(entry, call))


@kernels(by_type=True, keys=("packed",))
def test_values_up_to_the_largest(entry: KernelEntry) -> None:
    call = make(Launch.fitting(entry, Case(lengths=((70, 70),))))
    dtype = call["query"].dtype
    largest = torch.finfo(dtype).max / (1 if dtype == torch.float16 else 1024)
    call["value"] = torch.sign(call["value"].float()).mul(largest).to(dtype)
    passes(Launch.of(entry, call))


def call_with_scores(entry: KernelEntry, scores: torch.Tensor) -> Call:
    """One non-causal query per row of `scores` `[queries, keys]`, at scale 1.

    Query i is the unit vector of channel i, the keys hold the scores (in the kernel's dtype).
    """
    queries, keys = scores.shape
    case = Case(lengths=((queries, keys),), num_heads=1, causal=False, scale=1.0)
    call = make(Launch.fitting(entry, case))
    call["query"] = torch.eye(queries, call["query"].shape[2], dtype=call["query"].dtype)[:, None]
    call["key"].zero_()
    call["key"][:, 0, :queries] = scores.T.to(call["key"].dtype)
    return call
