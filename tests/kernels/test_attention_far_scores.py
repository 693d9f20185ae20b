"""Scores of any size: exponentials are of their differences, and float32 has few bits for those.

Results are compared with the float64 reference. The bounds of tests/ops/oracle grow with the scores
and would allow anything here. So each test has scores whose softmax is known more exactly.
"""

from __future__ import annotations

import math

import torch

from hk_backend import reference
from hk_backend.kernels import KernelEntry
from hk_backend.kernels.masks import ALIBI, NO_MASK, PARTS, WINDOW
from hk_backend.reference.attention import distance, requests, visible_keys, widened
from tests.kernels.attention_launch import Launch, Outcome, kernels
from tests.ops.cases import Call, Case, arguments, int32, make
from tests.ops.oracle import ROUNDOFF, scores_of

UNCAPPED = (NO_MASK, *PARTS, WINDOW, ALIBI)
"""Masks of scores that may be far from zero."""
LSE_ERROR = 2.0**-20
"""Relative error of a product of three float32 numbers, and of the number added to it."""
NEGLIGIBLE = 40.0
"""Distance below the largest score at which a key, at e^-40, has no weight in 16 bits."""
TIES = 5
DOTS = {torch.float16: 14, torch.bfloat16: 60}
"""Magnitudes of the queries and keys of exact scores, as powers of two."""


@kernels(by_type=True, mask=UNCAPPED, causal=(True, False), lengths=(((70, 330),), ((300, 300),)))
def test_ten_thousand_times_a_normal_variate(
    entry: KernelEntry, causal: bool, lengths: tuple[tuple[int, int], ...]
) -> None:
    """Scores lie beyond 2^31: a result lies between values of keys that may have the largest score.
    FP8 holds no such keys, so there the scale is large."""
    far = {"magnitude": 1e4, "scale": 1.0}
    if entry.facts["stored"] != entry.facts["dtype"]:
        far = {"magnitude": 10.0, "scale": 1e6}
    launch = Launch(entry, Case(lengths, causal=causal, **far))
    outcome = launch.run()
    assert outcome.findings == []
    [(_, keys, values)] = requests(arguments(launch.call))
    heads = launch.call["query"].shape[1]
    query = launch.call["query"].double().transpose(0, 1)
    keys, values = (
        widened(stored, 1.0, heads, torch.float64).transpose(0, 1) for stored in (keys, values)
    )
    scores, error = scores_of(launch.call, query, keys)
    seen = visible_keys(distance(*scores.shape[1:]), causal, None)
    scores = scores.masked_fill(~seen, -math.inf)
    largest = (scores - error).amax(-1, keepdim=True)
    contends = scores + error >= largest - NEGLIGIBLE
    assert (contends.sum(-1) == 1).double().mean() > 0.9
    out = outcome.out.double().transpose(0, 1)
    for row in range(query.shape[1]):
        shown = contends[:, row, :, None]
        low = values.masked_fill(~shown, math.inf).amin(1)
        high = values.masked_fill(~shown, -math.inf).amax(1)
        slack = 2 * ROUNDOFF[launch.call["query"].dtype] * torch.maximum(low.abs(), high.abs())
        assert ((out[:, row] >= low - slack) & (out[:, row] <= high + slack)).all()
    strayed = error.masked_fill(~seen, 0.0).amax(-1) + LSE_ERROR * launch.want.lse.abs()
    assert ((outcome.lse - launch.want.lse).abs() <= strayed).all()


@kernels(by_type=True, mask=UNCAPPED, keys=("packed",), power=(24, 25, 27, 31, 60, 100, 127, 130))
def test_scores_that_differ_in_their_last_bits(entry: KernelEntry, power: int) -> None:
    """Scaled scores lie around +-2^power and around 0: ties and neighbours, constant and rising."""
    keys = torch.arange(400)
    ties, rising = keys % TIES, 20 - keys // 20
    call = exact_scores(
        entry, power, [(1, ties), (-1, ties), (1, rising), (0, ties), (-1, rising), (0, rising)]
    )
    outcome = Launch.of(entry, call).run()
    assert_rounded(call, outcome)
    assert outcome.lse.isinf().any() == (power > 127)


@kernels(by_type=True, mask=UNCAPPED, keys=("packed",), dtype=("bf16",))
def test_scores_past_float32(entry: KernelEntry) -> None:
    """A score of minus infinity has no weight. Plus infinity has no softmax, and stays in its
    row."""
    call = exact_scores(entry, 27, [(1, torch.arange(130) % TIES)] * 4)
    query, key = call["query"], call["key"]
    key[:, 0, 4:7] = 0
    key[7, 0, 4], key[9, 0, 5], key[:, 0, 6] = 2.0**100, -(2.0**100), -(2.0**100)
    for row in range(3):
        query[row, 0, 4 + row] = 2.0**100
    outcome = Launch.of(entry, call).run()
    assert outcome.out[0].isnan().all()
    assert outcome.lse[0, 0].isnan()
    assert not outcome.out[2].any()
    assert outcome.lse[0, 2] == -math.inf
    query[:3, 0, 4:7] = 0
    key[9, 0, 5] = 0
    hidden = Launch.of(entry, call).run()
    torch.testing.assert_close(hidden.out[3], outcome.out[3], rtol=0, atol=0)
    keep = torch.arange(130) != 9
    call |= {"key": key[keep], "value": call["value"][keep], "key_start_loc": int32([0, 129])}
    assert_rounded(call, outcome, rows=[1])


def exact_scores(entry: KernelEntry, power: int, rows: list[tuple[int, torch.Tensor]]) -> Call:
    """A full call of one head with a query for each of `rows`: (sign, steps `[keys]`).

    Its scores are sign * 2^power - steps, in units of the last of float32's 24 bits at 2^power, or
    minus steps where the sign is 0. All products and sums are exact.
    """
    case = Case(lengths=((len(rows), len(rows[0][1])),), num_heads=1, causal=False)
    fitted = Launch.fitting(entry, case)
    call = make(fitted.but(head_size=max(fitted.head_size, 40)))
    dot = DOTS[call["query"].dtype]
    query, key = (torch.zeros(call[name].shape) for name in ("query", "key"))
    for row, (sign, steps) in enumerate(rows):
        far, near = 8 + 2 * row, 9 + 2 * row  # channels
        query[row, 0, far] = sign * 2.0**dot
        query[row, 0, near] = 2.0 ** (dot if sign else dot + 23 - power)
        key[:, 0, far] = 2.0**dot
        key[:, 0, near] = -steps.float() * 2.0 ** (dot - 23)
    call["query"], call["key"] = query.to(call["query"].dtype), key.to(call["key"].dtype)
    call["scale"] = 2.0 ** (power - 2 * dot)
    return call


def assert_rounded(call: Call, outcome: Outcome, rows: list[int] | None = None) -> None:
    """Asserts that nothing is lost but the rounding of weights and output to 16 bits."""
    chosen = slice(None) if rows is None else rows
    assert outcome.findings == []
    want, want_lse = reference.attention_prefill(arguments(call))
    sizes, _ = reference.attention_prefill(arguments(call, value=call["value"].abs()))
    bound = 1.01 * ROUNDOFF[call["query"].dtype] * (sizes + want.abs())
    assert ((outcome.out - want).abs() <= bound)[chosen].all()
    lse, want_lse = outcome.lse[:, chosen], want_lse[:, chosen].float()
    assert (((lse - want_lse).abs() <= LSE_ERROR * want_lse.abs()) | (lse == want_lse)).all()
