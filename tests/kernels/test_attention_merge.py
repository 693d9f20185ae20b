"""The kernels that join the parts of an attention: mutants of their source, any number of parts,
and sinks."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from hk_backend.kernels import KernelEntry
from hk_backend.kernels.masks import PARTS
from hk_backend.kernels.toolchain.compiler import Toolchain
from tests.kernels import source_mutants
from tests.kernels.attention_launch import Launch, bits, kernels, merging, parts_of, passes
from tests.kernels.catalogues import selected
from tests.kernels.cover import family, of_some_kinds
from tests.kernels.source_mutants import WEIGHTS, SourceMutant
from tests.ops.cases import Call, Case, make
from tests.ops.oracle import close
from tests.proof.kernel_digest import companions

MERGE = "csrc/kernels/attention_merge.hip"
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
"""A kernel for parts by each kernel that joins them."""
NUMBERS = (1, 2, 8, 9, 17)
"""Of parts: some, and more than the kernel loads at once."""
MUTANTS = (
    SourceMutant("a part less", MERGE, "part < args.parts; part", "part < args.parts - 1; part"),
    SourceMutant("the first parts alone", MERGE, "add(part, factor)", "add(0, factor)"),
    SourceMutant("what there is does not shrink", MERGE, "value *= Pair(kept)", "value *= Pair(1)"),
    SourceMutant("nor its sum", MERGE, "all.total *= kept;", ""),
    SourceMutant("outputs as they are", MERGE, "Pair(weight)", "Pair(1)"),
    SourceMutant("without the maximum", MERGE, "(part[i].maximum - base) * factor", "0.0f"),
    SourceMutant("without the sum", MERGE, "part[i].total *", "1.0f *"),
    SourceMutant("past the last part", MERGE, "if (i >= parts) part[i]", "if (false) part[i]"),
    SourceMutant("another head's sums", MERGE, "head * args.num_tokens + row", "row"),
    SourceMutant("rows of nobody", MERGE, "if (exists()) store", "store"),
    SourceMutant(
        "rows past the tokens",
        MERGE,
        "min(starts[args.num_requests], args.num_tokens)",
        "starts[args.num_requests]",
    ),
    SourceMutant("without the sink", MERGE, "sink != kNoScore", "false"),
    SourceMutant("the sink's weight alone", WEIGHTS, "kept * __builtin", "__builtin"),
    SourceMutant("without the scale", MERGE, "factor = Scale(", "factor = Scale(2 * "),
)
DRAWN = 2
"""Mutants that a run judges."""


def test_every_kernel_that_joins_parts_is_proved() -> None:
    """A record of a kernel for parts knows the digest of the one that joins them."""
    assert set(JOINED) == set(family("attention_merge"))
    assert all(companions(entry) == [merge] for merge, entry in JOINED.items())


def launch(case: Case, number: int, entry: KernelEntry = PART) -> Launch:
    found = Launch(entry, case)
    found.parts = parts_of(found.call, number)
    return found


def test_what_a_mutant_changes_is_there() -> None:
    for mutant in MUTANTS:
        source_mutants.changed(mutant)


@pytest.mark.parametrize("mutant", of_some_kinds("merge", DRAWN, {m.name: [m] for m in MUTANTS}))
def test_mutants_of_the_source(mutant: SourceMutant, tmp_path: Path, tools: Toolchain) -> None:
    code = source_mutants.compile_mutant(mutant, tmp_path, tools, [merging(PART)])
    chosen = [all_scores_low(9), high_sinks(9), past_the_tokens(2)]
    launches = [*(launch(case, 9) for case in CASES), *chosen]
    outcomes = [each.run(merge=code) for each in launches]
    assert any(outcome.findings or not outcome.excess <= 1 for outcome in outcomes)


def all_scores_low(number: int) -> Launch:
    """So low that a weight which is taken from zero is none."""
    call = make(Launch.fitting(PART, LOW))
    call["query"].fill_(-2.5)
    cache = call["paged_kv"].key.tensor
    cache.copy_(torch.where(cache.isnan(), cache, 8.0))
    return of_call(call, number)


def high_sinks(number: int) -> Launch:
    """That take most of the weight."""
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
    """Each within the bound of one rounding more, without lse too, and in any order of waves."""
    parts = launch(case, number, entry)
    found = passes(parts)
    assert torch.equal(bits(passes(parts, seed=1).out), bits(found.out))
    assert torch.equal(bits(parts.run(with_lse=False).out), bits(found.out))


@kernels(by_type=True, mask=PARTS)  # kernels that join parts differ by type
def test_sinks(entry: KernelEntry) -> None:
    """Once for all parts. Minus infinity is none."""
    call = make(Launch.fitting(entry, Case(((40, 300), (3, 20)), 4, 2, sinks=True)))
    call["sinks"] = torch.tensor([-math.inf, 0.5, 3.0, -1.0])
    passes(Launch.of(entry, call))


def past_the_tokens(number: int) -> Launch:
    """A batch that was padded for a graph may end so; rows past the tokens have no memory."""
    launched = launch(CASES[1], number)
    launched.tensors["query_start_loc"] = launched.tensors["query_start_loc"] + torch.tensor(
        [0, 40], dtype=torch.int32
    )
    return launched


def test_a_request_that_ends_past_the_tokens_is_cut() -> None:
    passes(past_the_tokens(2))


def test_a_sink_of_infinity_takes_all_weight() -> None:
    """Where the definition has no number: zeros, and other heads as ever."""
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
