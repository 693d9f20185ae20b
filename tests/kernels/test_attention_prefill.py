"""The shipped attention kernels, executed and compared with the float64 reference.

Every launch also asserts that the emulator finds nothing. All inputs hold NaN wherever nothing is
to be read (tests/ops/cases), and the outputs hold it before the run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from hk_backend.kernels import KernelEntry
from tests.kernels.attention_launch import SPLIT_LAYOUTS, SWEPT, Launch, bits, kernels, passes
from tests.kernels.cover import cover, family, has
from tests.ops.cases import Case, make
from tests.seed import fixed

ENTRIES = [entry for entry in family("attention_prefill") if has(entry, SWEPT)]
HEADS = ((32, 8), (8, 1), (9, 3), (64, 8), (8, 8), (2, 1))
LAYOUTS = (
    "NHD, two tensors",
    "HND, two tensors",
    "one [2,B,N,H,D]",
    "one [B,H,N,2D]",
    "one [B,H,N,2D], NHD strides",
    "one [B,N,H,2D]",
    "padded rows",
)
"""Layouts of tests/ops/layouts whose heads are contiguous."""
SIXTEENS = (16, 32, 48, 64, 80, 128, 256)
ANY_SIZE = (2, 3, 8, 12, 20, 28, 44, 76, 124, 252)
"""Tokens of a page: for kernels of multiples of 16, and for others."""
QUERY_EDGES = (1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 289, 511, 513)
KEY_EDGES = (0, 1, 15, 16, 63, 64, 65, 127, 128, 191, 192, 255, 256, 257, 319, 320, 321, 448)

CAUSAL = (True, False)
RANDOM_BATCHES = 4


AXES = {
    "heads": HEADS,
    "layout": (*LAYOUTS, *SPLIT_LAYOUTS),
    "block_size": (*SIXTEENS, *ANY_SIZE),
    "causal": CAUSAL,
    "scale": (None, 0.3, -0.1, 0.0),
    "requests": (1, 2, 3, 4),
    "key_lengths": ("own", "extend", "unrelated"),
    "before": (0, 2, 300),
    "after": (0, 1, 9),
    "magnitude": (0.5, 1.5, 4.0),
}


def drawn(number: int, axes: dict[str, Any]) -> Case:
    """A case with one value of each axis; the lengths are edges of tiles, or any."""
    random = fixed(f"lengths {number}")
    longest = 900 // axes["heads"][0]

    def lengths() -> tuple[int, int]:
        queries = min(random.choice((0, random.randint(1, 300), *QUERY_EDGES)), longest)
        cached = random.choice((random.randint(0, 500), *KEY_EDGES))
        alone = axes["key_lengths"] == "unrelated" and not axes["causal"]
        return queries, cached if alone else queries + cached * (axes["key_lengths"] != "own")

    same = ("layout", "block_size", "causal", "scale", "before", "after", "magnitude")
    return Case(
        lengths=tuple(lengths() for _ in range(axes["requests"])),
        num_heads=axes["heads"][0],
        num_kv_heads=axes["heads"][1],
        seed=number,
        **{name: axes[name] for name in same},
    )


COVER = [
    pytest.param(entry, drawn(number, axes), id=f"{number}-{entry.name}")
    for number, (entry, axes) in enumerate(cover("batches", "attention_prefill", SWEPT, **AXES))
]
proof = pytest.mark.proof(with_types=False)


@proof
@pytest.mark.parametrize(("entry", "case"), COVER)
def test_a_pairwise_cover_of_batches(entry: KernelEntry, case: Case) -> None:
    passes(Launch(entry, case))


@proof
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_random_batches(entry: KernelEntry) -> None:
    """Each kernel gets other batches, since kernels share templates, with any value of any axis."""
    random = fixed(f"batches {entry.name}")
    for _ in range(RANDOM_BATCHES):
        axes = {name: random.choice(values) for name, values in AXES.items()}
        passes(Launch(entry, drawn(random.randrange(2**16), axes)))


PAIRS = tuple(itertools.product(QUERY_EDGES, KEY_EDGES))
"""Lengths at edges of query tiles of 128 and 256, waves of 32 rows, key tiles of 64, and rings of
three to five stages."""


def edges(entry: KernelEntry, causal: bool, pairs: Sequence[tuple[int, int]]) -> None:
    """Runs each pair as a request: the number of query tokens, and the number of keys before
    them."""
    lengths = tuple((n, n + s) for n, s in pairs)
    passes(Launch(entry, Case(lengths=lengths, num_heads=1, block_size=32, causal=causal)))


@kernels(causal=CAUSAL)
def test_pairs_of_tile_edges(entry: KernelEntry, causal: bool) -> None:
    edges(entry, causal, fixed(f"edges {entry.name} {causal}").sample(PAIRS, 12))


@proof
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
@pytest.mark.parametrize("causal", CAUSAL, ids=["causal", "full"])
def test_every_pair_of_tile_edges(entry: KernelEntry, causal: bool) -> None:
    """Kernels with the same schedule, whose rows come from elsewhere, share the pairs."""
    alike = [other for other in ENTRIES if schedule(other) == schedule(entry)]
    share = PAIRS[alike.index(entry) :: len(alike)]
    edges(entry, causal, share if causal else share[::3])


def schedule(entry: KernelEntry) -> tuple[Any, ...]:
    """Facts that the edges of tiles depend on. FP8 codes are widened on their way, in a loop of its
    own."""
    facts = entry.facts
    widened = facts["stored"] != facts["dtype"]
    return entry.arch, entry.tile, facts["head_size"], facts["mask"], facts["padded"], widened


@kernels()
def test_the_order_of_waves_does_not_matter(entry: KernelEntry) -> None:
    """Any interleaving gives the very same bits."""
    launch = Launch(entry, Case(lengths=((300, 420), (33, 97)), block_size=48))
    outcomes = [passes(launch, seed) for seed in range(3)]
    for other in outcomes[1:]:
        assert torch.equal(bits(other.out), bits(outcomes[0].out))
        assert torch.equal(bits(other.lse), bits(outcomes[0].lse))


@kernels(heads=HEADS)
def test_every_ratio_of_heads(entry: KernelEntry, heads: tuple[int, int]) -> None:
    """Each query head reads its own KV head: all values of a KV head are its number."""
    case = Case(lengths=((3, 70),), num_heads=heads[0], num_kv_heads=heads[1])
    call = make(Launch.fitting(entry, case))
    own = torch.arange(heads[1], dtype=torch.float32)  # eight at most: exact in every format
    values = call["paged_kv"].value.tensor if "paged_kv" in call else call["value"]
    head_axis = 1
    shape = [1] * values.dim()
    shape[head_axis] = heads[1]
    values.copy_(torch.where(values.float().isnan(), math.nan, own.view(shape)))
    outcome = passes(Launch.of(entry, call))
    expected = own.repeat_interleave(heads[0] // heads[1])
    nearest = outcome.out.float().mean(-1).round()  # the weights are rounded, and sum to about 1
    assert torch.equal(nearest, expected.expand(3, -1))


@kernels()
def test_a_long_row(entry: KernelEntry) -> None:
    """One query sees so many keys that every stage of the rings is used many times."""
    passes(Launch(entry, Case(lengths=((1, 6000), (2, 4097)), num_heads=1, block_size=256)))


@kernels()
def test_requests_without_queries_or_keys(entry: KernelEntry) -> None:
    """A row without keys is zero, its log-sum-exp minus infinity. Nothing else is written."""
    lengths = ((0, 0), (0, 70), (5, 5), (40, 0), (0, 3), (64, 10))
    for causal in (True, False):
        outcome = passes(Launch(entry, Case(lengths=lengths, causal=causal, after=3)))
        assert torch.equal(outcome.lse[:, 5:45], torch.full((2, 40), -math.inf))
        assert not outcome.out[5:45].any()


@kernels(causal=CAUSAL, before=(255, 256, 600))
def test_rows_before_the_first_request(entry: KernelEntry, before: int, causal: bool) -> None:
    """A mixed batch begins with decodes: their rows are in no tile, neither computed nor
    written."""
    case = Case(lengths=((70, 90), (5, 5)), before=before, causal=causal)
    outcome = passes(Launch(entry, case))
    alone = passes(Launch(entry, case.but(before=0)))
    copied = [found.report.counters.bytes["lds_copy"] for found in (outcome, alone)]
    assert copied[0] == copied[1]


@kernels()
def test_a_batch_without_tokens(entry: KernelEntry) -> None:
    for lengths in ((), ((0, 0),), ((0, 9), (0, 0))):
        passes(Launch(entry, Case(lengths=lengths, after=4)))


@kernels(dtype=("bf16",))  # each fp16 kernel has the instructions of one of these (test_mutants.py)
def test_more_requests_than_lanes(entry: KernelEntry) -> None:
    """The search for a workgroup's request narrows 64-fold per step: here it takes two steps."""
    random = torch.Generator().manual_seed(7)
    counts = torch.randint(0, 4, (100,), generator=random).tolist()
    counts[40], counts[81] = 260, 300
    lengths = tuple((n, n + 2 * (i % 3)) for i, n in enumerate(counts))
    passes(Launch(entry, Case(lengths=lengths, num_heads=1)))


@kernels(keys=("packed",))
def test_strided_rows(entry: KernelEntry) -> None:
    """Query, key and value are slices of one projection, as in models."""
    case = Launch.fitting(entry, Case(lengths=((80, 80),), num_heads=4, num_kv_heads=2))
    call = make(case.but(value_size=None))
    together = torch.cat([call["query"], call["key"], call["value"]], dim=1)
    call["query"], call["key"], call["value"] = together.split([4, 2, 2], dim=1)
    passes(Launch.of(entry, call))


@kernels()
def test_the_log_sum_exp_may_be_left_out(entry: KernelEntry) -> None:
    launch = Launch(entry, Case(lengths=((40, 90),)))
    with_it, without = passes(launch), launch.run(with_lse=False)
    assert without.findings == []
    assert without.excess <= 1
    assert torch.equal(bits(without.out), bits(with_it.out))


@kernels(keys=("paged",), layout=LAYOUTS, block_size=SIXTEENS)
def test_pages_of_multiples_of_16(entry: KernelEntry, layout: str, block_size: int) -> None:
    reads(entry, layout, block_size)


@kernels(keys=("split",), layout=SPLIT_LAYOUTS, block_size=SIXTEENS)
def test_pages_in_pieces_of_16_bytes(entry: KernelEntry, layout: str, block_size: int) -> None:
    reads(entry, layout, block_size)


@kernels(keys=("any_pages",), layout=LAYOUTS, block_size=ANY_SIZE)
def test_pages_of_other_sizes(entry: KernelEntry, layout: str, block_size: int) -> None:
    reads(entry, layout, block_size)


@kernels(keys=("tokens",), layout=LAYOUTS)
def test_pages_of_one_token(entry: KernelEntry, layout: str) -> None:
    reads(entry, layout, 1)


def reads(entry: KernelEntry, layout: str, block_size: int) -> None:
    lengths = ((40, 200), (3, 131), (70, 70))
    launch = Launch(entry, Case(lengths, 4, 2, layout=layout, block_size=block_size))
    assert launch.call["paged_kv"].block_size == block_size
    passes(launch)
