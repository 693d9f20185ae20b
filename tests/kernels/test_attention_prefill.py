"""The attention kernels that ship, executed, against the float64 reference and its bounds.

Every launch also asserts that the emulator finds nothing. All inputs hold NaN wherever nothing is
to be read (tests/ops/cases), and the outputs before the run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from hk_backend.kernels import KernelEntry, catalogue
from hk_backend.ops import PagedKV
from tests.kernels.attention_launch import Launch, Outcome
from tests.ops.cases import Call, Case, int32, make
from tests.ops.strategies import generated

ENTRIES = catalogue("gfx950").families["attention_prefill"]
PACKED = [entry for entry in ENTRIES if not entry.facts["paged"]]
PAGED = [entry for entry in ENTRIES if entry.facts["paged"]]
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
"""Of tests/ops/layouts: those whose heads are contiguous."""
BLOCK_SIZES = (16, 32, 48, 64, 80, 128, 256)
QUERY_EDGES = (1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 289, 511, 513)
KEY_EDGES = (0, 1, 15, 16, 63, 64, 65, 127, 128, 191, 192, 255, 256, 257, 319, 320, 321, 448)

each_kernel = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
each_packed = pytest.mark.parametrize("entry", PACKED, ids=lambda entry: entry.name)
each_paged = pytest.mark.parametrize("entry", PAGED, ids=lambda entry: entry.name)


def passes(launch: Launch, seed: int = 0) -> Outcome:
    """Run `launch` and assert what must hold of every run."""
    outcome = launch.run(seed=seed)
    assert [finding.message for finding in outcome.findings] == []
    assert outcome.excess <= 1, launch.call
    return outcome


@st.composite
def kernel_cases(draw: DrawFn) -> Case:
    """Any call that the kernels cover, small enough for emulator and reference."""
    num_heads, num_kv_heads = draw(st.sampled_from(HEADS))
    longest = 1200 // num_heads
    causal = draw(st.booleans())
    queries = st.one_of(st.just(0), st.sampled_from(QUERY_EDGES), st.integers(1, 300)).map(
        lambda n: min(n, longest)
    )
    cached = st.one_of(st.sampled_from(KEY_EDGES), st.integers(0, 500))
    lengths = draw(st.lists(st.tuples(queries, cached), min_size=1, max_size=4))
    fresh = draw(st.booleans())  # the keys are the queries' own, or begin earlier (extend)
    alone = not causal and draw(st.booleans())  # or have nothing to do with them
    return Case(
        lengths=tuple((n, s if alone else n if fresh else n + s) for n, s in lengths),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        layout=draw(st.sampled_from(LAYOUTS)),
        block_size=draw(st.sampled_from(BLOCK_SIZES)),
        causal=causal,
        scale=draw(st.sampled_from((None, None, None, 0.3, -0.1, 0.0))),
        before=draw(st.sampled_from((0, 0, 2, 300))),
        after=draw(st.sampled_from((0, 1, 9))),
        magnitude=draw(st.sampled_from((0.5, 1.5, 4.0))),
        seed=draw(st.integers(0, 2**16)),
    )


@each_kernel
@generated(25)
@given(case=kernel_cases())
def test_generated_batches(entry: KernelEntry, case: Case) -> None:
    passes(Launch(entry, case))


@each_kernel
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
def test_every_pair_of_tile_edges(entry: KernelEntry, causal: bool) -> None:
    """Query tiles of 256, waves of 32 rows, key tiles of 64, rings of four and five tiles.

    Each kernel takes a part of the pairs; the kernels with the same schedule take them all.
    """
    pairs = list(itertools.product(QUERY_EDGES, KEY_EDGES))
    share = ENTRIES.index(entry) // 4  # bf16 and fp16 differ in two instructions
    lengths = tuple((n, n + s) for n, s in pairs[share::2][:: 1 if causal else 3])
    passes(Launch(entry, Case(lengths=lengths, num_heads=1, block_size=32, causal=causal)))


@each_kernel
def test_the_order_of_waves_does_not_matter(entry: KernelEntry) -> None:
    """Any interleaving gives the very same bits."""
    launch = Launch(entry, Case(lengths=((300, 420), (33, 97)), block_size=48))
    outcomes = [passes(launch, seed) for seed in range(4)]
    for other in outcomes[1:]:
        assert torch.equal(bits(other.out), bits(outcomes[0].out))
        assert torch.equal(bits(other.lse), bits(outcomes[0].lse))


@each_kernel
@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_every_ratio_of_heads(entry: KernelEntry, heads: tuple[int, int]) -> None:
    """Each query head reads its own KV head: values are the number of theirs."""
    case = Case(lengths=((3, 70),), num_heads=heads[0], num_kv_heads=heads[1])
    call = make(Launch.fitting(entry, case))
    own = torch.arange(heads[1], dtype=call["query"].dtype)
    values = call["paged_kv"].value.tensor if "paged_kv" in call else call["value"]
    head_axis = 1
    shape = [1] * values.dim()
    shape[head_axis] = heads[1]
    values.copy_(torch.where(values.isnan(), values, own.view(shape).expand(values.shape)))
    outcome = passes(Launch.of(entry, call))
    expected = own.repeat_interleave(heads[0] // heads[1])
    nearest = outcome.out.float().mean(-1).round()  # the weights are rounded, and sum to about 1
    assert torch.equal(nearest.to(own.dtype), expected.expand(3, -1))


@each_kernel
def test_a_long_row(entry: KernelEntry) -> None:
    """One query, so many keys that every stage of the rings is used many times."""
    passes(Launch(entry, Case(lengths=((1, 6000), (2, 4097)), num_heads=1, block_size=256)))


@each_kernel
def test_requests_without_queries_or_keys(entry: KernelEntry) -> None:
    """A row without keys is zero, its log-sum-exp minus infinity; nothing else is written."""
    lengths = ((0, 0), (0, 70), (5, 5), (40, 0), (0, 3), (64, 10))
    for causal in (True, False):
        outcome = passes(Launch(entry, Case(lengths=lengths, causal=causal, after=3)))
        assert torch.equal(outcome.lse[:, 5:45], torch.full((2, 40), -math.inf))
        assert not outcome.out[5:45].any()


@each_kernel
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("before", [255, 256, 600])
def test_rows_before_the_first_request(entry: KernelEntry, before: int, causal: bool) -> None:
    """As in a mixed batch, decodes first: nobody's tiles, neither computed nor written."""
    case = Case(lengths=((70, 90), (5, 5)), before=before, causal=causal)
    outcome = passes(Launch(entry, case))
    alone = passes(Launch(entry, case.but(before=0)))
    copied = [found.report.counters.bytes["lds_copy"] for found in (outcome, alone)]
    assert copied[0] == copied[1]


@each_kernel
def test_a_batch_without_tokens(entry: KernelEntry) -> None:
    for lengths in ((), ((0, 0),), ((0, 9), (0, 0))):
        passes(Launch(entry, Case(lengths=lengths, after=4)))


@each_kernel
def test_more_requests_than_lanes(entry: KernelEntry) -> None:
    """The search for a workgroup's request narrows 64-fold per step: here it takes two."""
    random = torch.Generator().manual_seed(7)
    counts = torch.randint(0, 4, (150,), generator=random).tolist()
    counts[40], counts[111] = 260, 300
    lengths = tuple((n, n + 2 * (i % 3)) for i, n in enumerate(counts))
    passes(Launch(entry, Case(lengths=lengths, num_heads=1)))


@each_packed
@pytest.mark.parametrize("step", [0.25, 4.0, 64.0])
@pytest.mark.parametrize("direction", [1, -1], ids=["rising", "falling"])
def test_maxima_that_move(entry: KernelEntry, direction: int, step: float) -> None:
    """Scores that rise with every key, every tile, and every fifth tile: O is rescaled or not."""
    keys = torch.arange(700)
    rows = [keys % 64, keys // 64, keys // 320 * 5, keys // 16]
    passes(Launch.of(entry, call_with_scores(entry, direction * step * torch.stack(rows))))


@each_packed
@pytest.mark.parametrize("jump", [7.9, 8.1, 100.0, 3e4])
def test_one_key_far_above_the_rest(entry: KernelEntry, jump: float) -> None:
    """Around the rise of 2^8 that a stale maximum is allowed, and far beyond."""
    places = (0, 1, 31, 32, 63, 64, 255, 256, 319, 320, 599)
    scores = torch.zeros(len(places), 600)
    for row, place in enumerate(places):
        scores[row, place] = jump
    passes(Launch.of(entry, call_with_scores(entry, scores)))
    passes(Launch.of(entry, call_with_scores(entry, -scores)))


@each_packed
@pytest.mark.parametrize("hidden", [1, 63, 64, 65, 128, 299, 300])
def test_scores_of_minus_infinity(entry: KernelEntry, hidden: int) -> None:
    """As many leading keys, then trailing ones, then all: no weight, and no NaN from inf - inf."""
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


@each_packed
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


@each_packed
def test_outliers(entry: KernelEntry) -> None:
    """As real models have: a few channels, and a few tokens, far larger than the rest."""
    call = make(Launch.fitting(entry, Case(lengths=((130, 330),), num_heads=4, num_kv_heads=2)))
    call["key"][:, :, 5] *= 30
    call["key"][0] *= 10
    call["value"][0] *= 1e-3
    call["value"][:, :, 7] *= 1000
    passes(Launch.of(entry, call))


@each_packed
def test_values_up_to_the_largest(entry: KernelEntry) -> None:
    call = make(Launch.fitting(entry, Case(lengths=((70, 70),))))
    dtype = call["query"].dtype
    largest = torch.finfo(dtype).max / (1 if dtype == torch.float16 else 1024)
    call["value"] = torch.sign(call["value"].float()).mul(largest).to(dtype)
    passes(Launch.of(entry, call))


@each_packed
def test_strided_rows(entry: KernelEntry) -> None:
    """Query, key and value as slices of one projection, as models hand them over."""
    case = Launch.fitting(entry, Case(lengths=((80, 80),), num_heads=4, num_kv_heads=2))
    call = make(case)
    together = torch.cat([call["query"], call["key"], call["value"]], dim=1)
    call["query"], call["key"], call["value"] = together.split([4, 2, 2], dim=1)
    passes(Launch.of(entry, call))


@each_kernel
def test_the_log_sum_exp_may_be_left_out(entry: KernelEntry) -> None:
    launch = Launch(entry, Case(lengths=((40, 90),)))
    with_it, without = passes(launch), launch.run(with_lse=False)
    assert without.findings == []
    assert without.excess <= 1
    assert torch.equal(bits(without.out), bits(with_it.out))


@each_paged
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("block_size", [16, 48, 64, 128])
def test_every_layout_and_block_size(entry: KernelEntry, layout: str, block_size: int) -> None:
    lengths = ((40, 200), (3, 131), (70, 70))
    case = Case(lengths, 4, 2, layout=layout, block_size=block_size)
    passes(Launch(entry, case))


@each_paged
def test_a_cache_of_more_than_2_to_the_31_elements(entry: KernelEntry) -> None:
    """Blocks at both ends of five billion bytes, of which only the touched pages exist."""
    case = Launch.fitting(entry, Case(lengths=((20, 60),), num_kv_heads=2))
    call = make(case)
    small: PagedKV = call["paged_kv"]
    row = 2 * case.head_size
    count = 5 * 10**9 // (2 * 2 * 16 * row)
    cache = torch.empty(count, 2, 16, row, dtype=call["query"].dtype)
    assert cache.numel() > 2**31
    for index in range(call["block_table"].shape[1] - 1):
        block = int(call["block_table"][0, index])
        moved = count - 1 - index if index % 2 else index
        size = case.head_size
        for first, view in ((0, small.key), (size, small.value)):
            source = view.tensor.as_strided(
                (2, 16, size), (view.strides[1], view.strides[3], 1),
                view.tensor.storage_offset() + block * view.strides[0],
            )  # fmt: skip
            cache[moved, :, :, first : first + size] = source
        call["block_table"][0, index] = moved
    call["paged_kv"] = PagedKV.from_packed(cache)
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


def bits(tensor: torch.Tensor) -> torch.Tensor:
    view: Callable[[torch.dtype], torch.Tensor] = tensor.contiguous().view
    return view(torch.uint8)
