"""`attention_decode` on the hip device: its launches, refusals, and one graph for all lengths."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from hk_backend import _emulator
from hk_backend.devices import DeviceError, always
from hk_backend.devices.hip.attention_decode import OPERATOR
from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.kernels import KernelEntry, catalogue, decode_plan
from hk_backend.kernels.costs import costs
from hk_backend.lab.timing.launch import trace
from hk_backend.lab.timing.workloads.attention_decode import FAMILY
from hk_backend.ops import DecodeRequest, PagedKV, attention_decode
from hk_backend.terms.verdict import SERVED
from tests.devices.hip.device import OnTheHost
from tests.devices.hip.graph import Graph, Launch, check_replays
from tests.devices.hip.hip_calls import stream
from tests.kernels.attention_launch import excess
from tests.ops.oracle import expected

BATCH, BLOCKS, BLOCK_SIZE, HEADS, KV_HEADS, SIZE = 6, 60, 16, 8, 2, 64
REPLAYS = 200


@pytest.fixture
def device(library: EmulatedLibrary, streams: dict[int, int]) -> Iterator[OnTheHost]:
    device = OnTheHost(library, catalogue("gfx950"), check=lambda *_: SERVED)
    with always(device):
        yield device


def batch(seed: int) -> dict[str, torch.Tensor]:
    """Tensors of a padded batch: some requests, then empty rows, and a cache with NaN past them."""
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    own = [draw.choice((1, 1, 15, 16, 17, 33, 64, 100, draw.randint(1, 260))) for _ in range(BATCH)]
    real = draw.randint(0, BATCH)
    lengths = own[:real] + [0] * (BATCH - real)
    table = torch.full((BATCH, BLOCKS), 10**6, dtype=torch.int32)  # no such block
    cache = torch.full((BLOCKS, 2, BLOCK_SIZE, KV_HEADS, SIZE), torch.nan, dtype=torch.bfloat16)
    free = draw.sample(range(BLOCKS), BLOCKS)
    for request, keys in enumerate(lengths):
        for index, first in enumerate(range(0, keys, BLOCK_SIZE)):
            block = table[request, index] = free.pop()
            rows = min(keys - first, BLOCK_SIZE)
            shape = (2, rows, KV_HEADS, SIZE)
            cache[block, :, :rows] = torch.randn(shape, generator=generator).bfloat16()
    starts = torch.tensor([min(i, real) for i in range(BATCH + 1)], dtype=torch.int32)
    return {
        "query": torch.randn(BATCH, HEADS, SIZE, generator=generator).bfloat16(),
        "query_start_loc": starts,
        "cache": cache,
        "block_table": table,
        "seq_lens": torch.tensor(lengths, dtype=torch.int32),
    }


def arguments(tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """The operator's arguments over a batch's tensors, without copies."""
    cache = tensors["cache"]
    views = cache[:, 0], "B N H D", cache[:, 1], "B N H D"
    named = {name: tensor for name, tensor in tensors.items() if name != "cache"}
    return {**named, "paged_kv": PagedKV.from_views(*views)}


def check(tensors: Mapping[str, torch.Tensor], out: torch.Tensor) -> None:
    """Rows of requests are right to the rounding of bfloat16, and the others are untouched."""
    given = arguments(tensors)
    real = int(given["query_start_loc"][-1])
    assert out[real:].isnan().all()
    defaults = {"causal": True, "scale": None, "sliding_window": None, "logits_soft_cap": None}
    more = {"sinks": None, "alibi_slopes": None, "k_scale": 1.0, "v_scale": 1.0}
    want = expected({**given, **defaults, **more}, torch.bfloat16)
    assert excess(out[:real], want.out[:real], want.out_bound[:real]) <= 1


def test_one_graph_serves_all_lengths(
    device: OnTheHost, library: EmulatedLibrary, streams: dict[int, int]
) -> None:
    """Lengths, block tables, the cache and the number of real rows change between replays."""
    held = batch(0)
    launch = Launch(lambda: attention_decode(**arguments(held)), held, lambda out: check(held, out))
    check_replays(library, streams[0], launch, [batch(seed) for seed in range(1, REPLAYS + 1)])
    assert not device.workspaces.of(0, streams[0], 0).arrived.any()


def test_a_first_use_in_a_capture_says_what_to_do(
    device: OnTheHost, library: EmulatedLibrary, streams: dict[int, int]
) -> None:
    """No lasting memory can be allocated in a capture, and the message is of no other operator."""
    held = batch(1)
    attention_decode(**arguments(held))
    library.synchronise(streams[0])
    streams[0] = stream(library)
    why = "a launch that leaves partial results has no workspace on a stream"
    with Graph(library, streams[0]).capture(), pytest.raises(DeviceError, match=why):
        attention_decode(**arguments(held))


def of(**changes: Any) -> DecodeRequest:
    request = DecodeRequest("cuda", torch.bfloat16, 32, 8, 128, block_size=16)
    return replace(request, **changes)


REFUSED = [
    (of(max_query_len=64), "256 rows of a KV head: the gfx950 kernels have up to 128"),
    (of(head_size=80, kv_dtype=torch.float8_e4m3fn), "head_size 80 of paged keys and values in"),
    (of(head_size=256, has_alibi=True), "alibi_slopes with head_size 256"),
    (of(kv_dtype=torch.float8_e5m2), "keys and values in torch.float8_e5m2"),
    (of(paged=False), "packed"),
    (of(head_size=80, logits_soft_cap=30.0), "logits_soft_cap with head_size 80"),
    (
        of(head_size=80, max_query_len=64),
        "256 rows of a KV head: the gfx950 kernels have up to 128",
    ),
    (of(head_size=256, block_size=24), "head_size 256 of any_pages keys and values in"),
]


@pytest.mark.parametrize(("request_", "why"), REFUSED)
def test_refusals_say_why(request_: DecodeRequest, why: str) -> None:
    verdict = OPERATOR.verdict(request_, catalogue("gfx950"), lambda operator, family: SERVED)
    assert not verdict
    assert why in verdict.why


@pytest.mark.parametrize(("heads", "tokens", "rows"), [(32, 16, {64, 128}), (64, 16, {128})])
def test_the_tiles_that_hold_a_request(heads: int, tokens: int, rows: set[int]) -> None:
    found: list[KernelEntry] = []
    OPERATOR.verdict(
        of(num_heads=heads, max_query_len=tokens),
        catalogue("gfx950"),
        lambda operator, family: (found.extend(family), SERVED)[1],
    )
    assert {kernel.tile.rows for kernel in found} == rows


def test_too_many_tokens_are_refused_by_name(device: OnTheHost) -> None:
    with pytest.raises(
        ValueError, match="max_query_len: 33 is not valid on this device: expected at most 32"
    ):
        attention_decode(**arguments(batch(1)), max_query_len=33)
    with pytest.raises(ValueError, match="max_query_len: 0"):
        attention_decode(**arguments(batch(1)), max_query_len=0)


@pytest.mark.parametrize(
    "kernel", catalogue("gfx950").families["attention_decode"], ids=lambda kernel: kernel.name
)
def test_all_workgroups_of_a_grid_fit_at_once(kernel: KernelEntry) -> None:
    """The clock reads a kernel's registers from its descriptor, and the plan must agree: shares
    are equal, so a second round would take as long as the first."""
    assert FAMILY.small is not None
    traced = trace(FAMILY.launch_of(kernel, FAMILY.small(kernel)), threads=1)
    found = traced.trace.resident(_emulator.TimingParameters("gfx950"))
    assert decode_plan.resident(kernel) == found


def test_the_grid_follows_from_the_heads_and_the_gpu() -> None:
    """No length is an argument, and a GPU is filled whatever the batch."""
    kernel = next(
        entry
        for entry in catalogue("gfx950").families["attention_decode"]
        if entry.name == "attention_decode_bf16_d128_paged_r64"
    )
    assert decode_plan.resident(kernel) == 3
    assert decode_plan.shares(kernel, 8, 256) == 96
    assert decode_plan.shares(kernel, 1, 256) == 768
    assert decode_plan.shares(kernel, 1024, 256) == 1


def layer_request(**changes: object) -> DecodeRequest:
    facts: dict[str, object] = {
        "device_type": "cpu",
        "dtype": torch.bfloat16,
        "num_heads": 32,
        "num_kv_heads": 8,
        "head_size": 128,
        "kv_dtype": torch.bfloat16,
        "block_size": 16,
        "cache_layouts": ("B N H D", "B N H D"),
    }
    return DecodeRequest(**{**facts, **changes})  # type: ignore[arg-type]


def test_the_time_of_a_batch(device: OnTheHost) -> None:
    """Rows are requests of as many keys each. A window and an FP8 cache leave less to read."""
    long, short, narrow = (
        device.microseconds(layer_request(**changes), 64)
        for changes in (
            {"keys": 8192},
            {"keys": 8192, "sliding_window": 512},
            {"keys": 8192, "kv_dtype": torch.float8_e4m3fn},
        )
    )
    read = 2 * 64 * 8192 * 8 * 128 * 2 / costs("gfx950").read_bytes_per_microsecond
    assert read < long < 1.1 * read
    assert short < 0.15 * long
    assert narrow < 0.6 * long
    assert device.microseconds(layer_request(keys=8192), 1) < 0.1 * long


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, "keys: 0 is not valid on this device: expected 1 or more, the keys of each request"),
        ({"keys": 3, "max_query_len": 4}, "keys: 3 is not valid on this device: expected 4 or mo"),
        ({"keys": 64, "max_query_len": 16, "num_heads": 128}, "256 rows of a KV head: the gfx950"),
        ({"keys": 64, "dtype": torch.float32}, "dtype torch.float32"),
    ],
    ids=["no keys", "fewer keys than tokens", "no tile", "no kernel"],
)
def test_no_time(device: OnTheHost, changes: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        device.microseconds(layer_request(**changes), 1)
