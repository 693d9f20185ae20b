"""The shipped decode kernels, executed and compared with the float64 reference.

Every launch also asserts that the emulator finds nothing, and that the workspace's counters are
zero again. All inputs hold NaN wherever nothing is to be read (tests/ops/cases).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hk_backend.kernels import KernelEntry, decode_plan
from tests.kernels.attention_decode_launch import DecodeLaunch
from tests.kernels.attention_launch import SPLIT_LAYOUTS, SWEPT, bits, is_untouched, passes
from tests.kernels.cover import cover, covered, family, has
from tests.kernels.test_attention_prefill import ANY_SIZE, LAYOUTS, SIXTEENS
from tests.ops.cases import Case, make
from tests.seed import fixed

ENTRIES = [entry for entry in family("attention_decode") if has(entry, SWEPT)]
ONE_OF_EACH = [entry for entry in ENTRIES if entry.facts["keys"] == "paged"]
"""A kernel of each head size, tile, mask and format: the others differ in where keys lie alone."""
HEADS = ((32, 8), (8, 1), (9, 3), (64, 8), (8, 8), (2, 1))
AXES = {
    "heads": HEADS,
    "layout": (*LAYOUTS, *SPLIT_LAYOUTS),
    "block_size": (*SIXTEENS, *ANY_SIZE),
    "scale": (None, 0.3, -0.1, 0.0),
    "requests": (1, 2, 5, 70),
    "tokens": (1, 4, 16),
    "shares": (1, 2, 5, 16),
    "window": (None, 1, 33, 300),
    "sinks": (False, True),
    "before": (0, 2),
    "after": (0, 3),
    "magnitude": (0.5, 1.5, 4.0),
}
LENGTHS = (0, 1, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 129, 256, 257, 320, 700)
RANDOM_BATCHES = 3
proof = pytest.mark.proof(with_types=False)


def drawn(number: int, axes: dict[str, Any], entry: KernelEntry) -> DecodeLaunch:
    """A launch with one value of each axis; the lengths are edges of tiles, or any."""
    random = fixed(f"decode {number}")
    heads, kv_heads = axes["heads"]
    most = max(min(axes["tokens"], entry.tile.rows * kv_heads // heads), 1)

    def lengths() -> tuple[int, int]:
        queries = random.choice((0, 1, random.randint(1, most), most))
        cached = random.choice((random.randint(0, 400), *LENGTHS))
        return queries, cached if axes["requests"] > 8 else queries + cached

    requests = [lengths() for _ in range(axes["requests"])]
    same = ("layout", "block_size", "scale", "sinks", "before", "after", "magnitude")
    case = Case(
        lengths=tuple((q, max(k, q)) for q, k in requests),
        num_heads=heads,
        num_kv_heads=kv_heads,
        sliding_window=axes["window"],
        k_scale="per head" if entry.facts["stored"] == "e4m3" else "off",
        v_scale="one" if entry.facts["stored"] == "e4m3" else "off",
        seed=number,
        **{name: axes[name] for name in same},
    )
    return DecodeLaunch(entry, case, axes["shares"])


COVER = [
    pytest.param(entry, number, axes, id=f"{number}-{entry.name}")
    for number, (entry, axes) in enumerate(cover("decode", "attention_decode", SWEPT, **AXES))
]


@proof
@pytest.mark.parametrize(("entry", "number", "axes"), COVER)
def test_a_pairwise_cover_of_batches(entry: KernelEntry, number: int, axes: dict[str, Any]) -> None:
    passes(drawn(number, axes, entry))


@proof
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_random_batches(entry: KernelEntry) -> None:
    random = fixed(f"decode batches {entry.name}")
    for _ in range(RANDOM_BATCHES):
        axes = {name: random.choice(values) for name, values in AXES.items()}
        passes(drawn(random.randrange(2**16), axes, entry))


@proof
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_edge_of_a_tile(entry: KernelEntry) -> None:
    """All lengths in one batch, whole and shared."""
    case = Case(lengths=tuple((1, keys) for keys in LENGTHS), num_heads=4, num_kv_heads=2)
    for shares in (1, 7, 64):
        passes(DecodeLaunch(entry, case.but(block_size=32), shares))


@covered("attention_decode", shares=(3, 8))
def test_no_order_changes_a_bit(entry: KernelEntry, shares: int) -> None:
    """Any workgroup may be the last one of a request, in any order of workgroups and waves."""
    case = Case(lengths=((1, 900), (2, 70), (0, 0), (1, 650)), num_heads=4, num_kv_heads=2)
    launch = DecodeLaunch(entry, case, shares)
    found = [passes(launch, seed) for seed in range(6)]
    assert all(torch.equal(bits(each.out), bits(found[0].out)) for each in found)
    assert all(torch.equal(bits(each.lse), bits(found[0].lse)) for each in found)


PAGED = {**SWEPT, "keys": ("paged",)}


@covered("attention_decode", PAGED, stale=(0, 300))
def test_empty_rows_cost_nothing(entry: KernelEntry, stale: int) -> None:
    """A padded batch executes what its requests alone execute, whatever the empty rows' lengths."""
    requests = ((1, 200), (1, 77))
    alone = DecodeLaunch(entry, Case(lengths=requests, num_heads=2), 4)
    padded = DecodeLaunch(entry, Case(lengths=(*requests, *((0, stale),) * 40), num_heads=2), 4)
    first, second = (passes(launch).report.counters for launch in (alone, padded))
    assert second.instructions == first.instructions
    assert second.matrix_flops == first.matrix_flops


@covered("attention_decode", PAGED, requests=(64, 65, 130))
def test_more_requests_than_lanes(entry: KernelEntry, requests: int) -> None:
    """64 requests are asked at once: shares begin and end on either side of that."""
    lengths = tuple((int(number % 3 > 0), 1 + number * 29 % 140) for number in range(requests))
    for shares in (1, 2, 7):
        passes(DecodeLaunch(entry, Case(lengths=lengths, num_heads=2), shares))


@covered("attention_decode", PAGED, parts=(2, 8, 9, 12, 17, 64, 65, 71))
def test_results_of_many_shares(entry: KernelEntry, parts: int) -> None:
    """Trees of one to three levels, whose last groups have the fewest results, and the most.

    Results of neighbouring requests lie beside those of the tree, and none is lost.
    """
    keys = parts * 9 * entry.tile.columns - 3
    around = (1, 20 * entry.tile.columns)
    case = Case(lengths=(around, (2, keys), around), num_heads=4, num_kv_heads=2, block_size=64)
    launch = DecodeLaunch(entry, case, parts + 4)
    found = [passes(launch, seed) for seed in range(2)]
    assert torch.equal(bits(found[0].out), bits(found[1].out))
    assert not is_untouched(launch.partial[-launch.partial.numel() // launch.shares :])


@covered("attention_decode", PAGED, shares=(64,))
def test_one_long_request(entry: KernelEntry, shares: int) -> None:
    """131,072 keys beside short requests."""
    lengths = ((1, 131072), *((1, keys) for keys in (1, 33, 100, 64)))
    passes(DecodeLaunch(entry, Case(lengths=lengths, num_heads=2, block_size=256), shares))


@covered("attention_decode", PAGED, magnitude=(8.0, 64.0))
def test_rising_maxima_and_outliers(entry: KernelEntry, magnitude: float) -> None:
    """Keys grow along the request: maxima rise from tile to tile, and from share to share."""
    case = DecodeLaunch.fitting(entry, Case(lengths=((2, 700), (1, 90)), block_size=16))
    call = make(case)
    cache = call["paged_kv"]
    for block in range(cache.num_blocks):
        view = cache.key.tensor
        grown = view[block].float() * (1 + magnitude * block / cache.num_blocks)
        view[block] = grown.to(view.dtype)
    passes(DecodeLaunch.shared(entry, call, 5))


@covered("attention_decode", PAGED, shares=(6,))
def test_lengths_change_between_launches(entry: KernelEntry, shares: int) -> None:
    """The same grid and workspace serve any lengths, as a captured launch must."""
    random = fixed(f"replays {entry.name}")
    launch = DecodeLaunch(entry, Case(lengths=((1, 900),) * 5, num_heads=2), shares)
    workspace = launch.partial, launch.arrived
    for _ in range(8):
        lengths = tuple((random.choice((0, 1)), random.randint(1, 900)) for _ in range(5))
        launch = DecodeLaunch(entry, Case(lengths=lengths, num_heads=2), shares)
        launch.partial, launch.arrived = workspace
        passes(launch)


@pytest.mark.parametrize("shares", [7, 64])
def test_requests_are_dealt_as_the_planner_says(shares: int) -> None:
    """Workgroups leave partial results in the places of those that share a request by `deal`.

    64 are more than have eight places each: then some have no work.
    """
    lengths = [1300, *(70, 33, 200) * 8, 500]
    for entry in ONE_OF_EACH:
        launch = DecodeLaunch(entry, Case(lengths=tuple((1, keys) for keys in lengths)), shares)
        passes(launch)
        tiles = [decode_plan.key_tiles(entry, keys) for keys in lengths]
        pieces = decode_plan.deal(tiles, shares, decode_plan.begin_tiles(entry))
        shared = {(each.share, each.share == each.first_share) for each in pieces if each.parts > 1}
        places = launch.partial.view(2 * shares, -1)
        written = {divmod(n, 2) for n in range(2 * shares) if not is_untouched(places[n])}
        assert written == shared, entry.name


def test_a_launch_without_requests_writes_nothing() -> None:
    for entry in ONE_OF_EACH:
        case = Case(lengths=((0, 0), (0, 5)), num_heads=2, after=3)
        passes(DecodeLaunch(entry, case, 2))
