"""Kernels that join the parts of an attention: any number of parts, and sinks."""

from __future__ import annotations

import math

import pytest
import torch

from hk_backend.kernels import KernelEntry
from hk_backend.kernels.masks import PARTS
from tests.kernels.attention_launch import Launch, bits, kernels, merging, parts_of, passes
from tests.kernels.catalogues import selected
from tests.kernels.cover import family
from tests.ops.cases import Call, Case, make
from tests.ops.oracle import close
from tests.proof.kernel_digest import companions

PART = selected("attention_prefill", dtype="bf16", head_size=64, keys="paged", mask="part")
CASES = (
    # parts of one request end before another's begin, a row sees nothing, heads share keys
    Case(((40, 570), (9, 70), (2, 0)), 9, 3, before=3, after=2, magnitude=4.0, sinks=True),
    Case(((30, 570),), 8, 1, magnitude=8.0, causal=False),
)
LOW, HIGH_SINKS = (Case(((5, 570),), 2, 1), Case(((5, 570),), 2, 1, sinks=True))
JOINED = {
    merging(entry): entry for entry in family("attention_prefill") if entry.facts["mask"] == "part"
}
"""A kernel for parts of the keys, by each kernel that joins such parts."""
NUMBERS = (1, 2, 8, 9, 17)
"""Numbers of parts: fewer than the kernel loads at once, as many, and more."""


def test_every_kernel_that_joins_parts_is_proved() -> None:
    """The record of a kernel for parts includes the digest of the kernel that joins them."""
    assert set(JOINED) == set(family("attention_merge"))
    assert all(companions(entry) == [merge] for merge, entry in JOINED.items())


def launch(case: Case, number: int, entry: KernelEntry = PART) -> Launch:
    found = Launch(entry, case)
    found.parts = parts_of(found.call, number)
    return found


def all_scores_low(number: int) -> Launch:
    """A launch with scores so low that a weight relative to a score of zero vanishes."""
    call = make(Launch.fitting(PART, LOW))
    call["query"].fill_(-2.5)
    cache = call["paged_kv"].key.tensor
    cache.copy_(torch.where(cache.isnan(), cache, 8.0))
    return of_call(call, number)


def high_sinks(number: int) -> Launch:
    """A launch with sinks that take most of the weight."""
    call = make(Launch.fitting(PART, HIGH_SINKS))
    call["sinks"].fill_(9.0)
    return of_call(call, number)


def of_call(call: Call, number: int) -> Launch:
    found = Launch.of(PART, call)
    found.parts = parts_of(call, number)
    return found


@pytest.mark.parametrize("number", [3, 9])
def test_scores_and_sinks_that_decide(number: int) -> None:
    passes(all_scores_low(number))
    passes(high_sinks(number))


@pytest.mark.proof
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("case", CASES, ids=["ragged", "full"])
@pytest.mark.parametrize("entry", JOINED.values(), ids=[entry.name for entry in JOINED])
def test_any_number_of_parts(entry: KernelEntry, case: Case, number: int) -> None:
    """Each result is within the bound of one more rounding, without lse too, and in any order of
    waves."""
    parts = launch(case, number, entry)
    found = passes(parts)
    assert torch.equal(bits(passes(parts, seed=1).out), bits(found.out))
    assert torch.equal(bits(parts.run(with_lse=False).out), bits(found.out))


@kernels(by_type=True, mask=PARTS)  # kernels that join parts differ by type
def test_sinks(entry: KernelEntry) -> None:
    """A sink counts once for all parts. A sink of minus infinity is none."""
    call = make(Launch.fitting(entry, Case(((40, 300), (3, 20)), 4, 2, sinks=True)))
    call["sinks"] = torch.tensor([-math.inf, 0.5, 3.0, -1.0])
    passes(Launch.of(entry, call))


def past_the_tokens(number: int) -> Launch:
    """A batch that was padded for a graph may end with rows past the tokens; they have no
    memory."""
    launched = launch(CASES[1], number)
    launched.tensors["query_start_loc"] = launched.tensors["query_start_loc"] + torch.tensor(
        [0, 40], dtype=torch.int32
    )
    return launched


def test_a_request_that_ends_past_the_tokens_is_cut() -> None:
    passes(past_the_tokens(2))


def test_a_sink_of_infinity_takes_all_weight() -> None:
    """The definition has no number for this: such a head is zero, and other heads are unchanged."""
    case = Launch.fitting(PART, Case(((40, 300), (3, 20)), 4, 2, sinks=True))
    call = make(case)
    call["sinks"][1] = math.inf
    launched = Launch.of(PART, call)
    outcome = launched.run()
    assert outcome.findings == []
    assert torch.equal(outcome.out[:, 1], torch.zeros_like(outcome.out[:, 1]))
    assert (outcome.lse[1] == math.inf).all()
    others, want = [0, 2, 3], launched.want
    close("out", outcome.out[:, others], want.out[:, others], want.out_bound[:, others])
    close("lse", outcome.lse[others], want.lse[others], want.lse_bound[others])
