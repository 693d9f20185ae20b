"""What the GPU kernels compute, and one reason for each thing that they do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from hk_backend.devices.hip.attention_family import STORED, verdict
from hk_backend.kernels import Catalogue, Family
from hk_backend.kernels.entry import Fact, Tile
from hk_backend.ops import AttentionRequest
from hk_backend.terms.verdict import Verdict, refused
from tests.devices.hip.attention_call import SPLIT_BY_CHANNEL, SPLIT_BY_TOKEN
from tests.kernels.catalogues import selected, with_kernels

LLAMA = AttentionRequest(
    device_type="cuda",
    dtype=torch.bfloat16,
    num_heads=32,
    num_kv_heads=8,
    head_size=128,
    kv_dtype=torch.bfloat16,
)
ANY_PAGES = {64: ("any_pages",), 128: ("any_pages",), 256: ()}
FP8 = {64: ("e4m3", "e5m2"), 128: ("e4m3", "e5m2"), 256: ("e4m3",)}
NO_KERNELS = Catalogue("gfx950", {})
PAGED = replace(LLAMA, paged=True, block_size=16, cache_layouts=("B H N D", "B H N D"))


def masks_of(size: int, keys: str, stored: str) -> tuple[str, ...]:
    """Of the kernels for keys that lie so, in 16 bits or in codes."""
    if stored == "e5m2":
        return ("none",)
    if keys == "any_pages" or (stored == "e4m3" and size != 128):
        return ("none", "window")
    return ("none", "window", "capped", *(() if stored == "e4m3" or size == 256 else ("alibi",)))


@pytest.fixture(scope="module")
def kernels() -> Catalogue:
    """The catalogue of the kernels' facts; no code of theirs runs here."""
    entry = replace(selected("gemm", a="bf16", b="bf16"), operator="attention_prefill")
    names = ("dtype", "head_size", "keys", "stored", "mask", "padded")
    every: list[dict[str, Fact]] = [
        dict(zip(names, facts, strict=True)) for facts in facts_of_kernels()
    ]
    return with_kernels(
        NO_KERNELS,
        *(
            replace(
                entry,
                name="_".join(["attention_prefill", *map(str, facts.values())]),
                facts=facts,
                tile=Tile(1, 1, int(facts["head_size"])),
            )
            for facts in every
        ),
    )


def facts_of_kernels() -> Iterator[tuple[str, int, str, str, str, bool]]:
    """At 256 channels neither pages of any size nor e5m2; padded, no FP8 either."""
    for dtype in ("bf16", "f16"):
        for size in (64, 128, 256):
            for keys in ("packed", "paged", "tokens", "split", *ANY_PAGES[size]):
                for stored in (dtype, *(() if keys == "packed" else FP8[size])):
                    for mask in masks_of(size, keys, stored):
                        yield dtype, size, keys, stored, mask, False
                        narrow = size == 64 or keys == "any_pages" or stored != dtype
                        if not narrow and mask in ("none", "window"):
                            yield dtype, size, keys, stored, mask, True


def padded_to(request: AttentionRequest) -> int:
    return 128 if max(request.head_size, request.value_size) <= 128 else 256


def never_asked(kernels: Family) -> Verdict:
    raise AssertionError(f"{kernels[0].name} was found")


@pytest.mark.parametrize(
    ("request_", "keys"),
    [
        *(
            (replace(PAGED, kv_dtype=kv_dtype, block_size=size, cache_layouts=layouts), keys)
            for kv_dtype in (torch.float8_e4m3fn, torch.float8_e5m2)
            for size, layouts, keys in (
                (16, None, "paged"),
                (1, None, "tokens"),
                (24, None, "any_pages"),
                (32, SPLIT_BY_CHANNEL, "split"),
                (32, SPLIT_BY_TOKEN, "split"),
            )
        ),
        (LLAMA, "packed"),
        (replace(LLAMA, head_size=64, dtype=torch.float16, kv_dtype=torch.float16), "packed"),
        (replace(LLAMA, kv_dtype=None, causal=False), "packed"),
        (replace(LLAMA, num_heads=9, num_kv_heads=3), "packed"),
        (PAGED, "paged"),
        (replace(PAGED, block_size=48), "paged"),
        (replace(PAGED, block_size=1), "tokens"),
        (replace(PAGED, block_size=8), "any_pages"),
        (replace(PAGED, block_size=24), "any_pages"),
        (replace(PAGED, cache_layouts=("B N H D", "B N H D")), "paged"),
        (replace(PAGED, block_size=None, cache_layouts=None), "paged"),
        (replace(PAGED, cache_layouts=SPLIT_BY_CHANNEL), "split"),
        (replace(PAGED, cache_layouts=SPLIT_BY_TOKEN), "split"),
        (replace(LLAMA, sliding_window=4096), "packed"),
        (replace(LLAMA, head_size=256), "packed"),
        (replace(PAGED, head_size=256, kv_dtype=torch.float8_e4m3fn, sliding_window=1), "paged"),
        *((replace(LLAMA, head_size=size), "packed") for size in (8, 72, 80, 96, 112, 120)),
        *((replace(PAGED, head_size=size), "paged") for size in (136, 160, 192, 248)),
        (replace(PAGED, head_size=96, block_size=1, has_sinks=True), "tokens"),
        (replace(PAGED, head_size=160, cache_layouts=SPLIT_BY_TOKEN), "split"),
        (replace(LLAMA, head_size=192, head_size_v=128), "packed"),
        (replace(LLAMA, head_size=64, head_size_v=128), "packed"),
        (replace(PAGED, head_size=192, head_size_v=128, sliding_window=9), "paged"),
        (replace(PAGED, head_size=128, head_size_v=192, cache_layouts=SPLIT_BY_TOKEN), "split"),
        (replace(PAGED, head_size=192, head_size_v=128, block_size=1), "tokens"),
        (replace(LLAMA, has_sinks=True, causal=False), "packed"),
        (replace(PAGED, sliding_window=128, has_sinks=True, block_size=1), "tokens"),
        (replace(PAGED, sliding_window=128, kv_dtype=torch.float8_e4m3fn), "paged"),
        (replace(LLAMA, logits_soft_cap=30.0), "packed"),
        (replace(LLAMA, logits_soft_cap=1024.0, causal=False), "packed"),
        (replace(LLAMA, logits_soft_cap=0.0), "packed"),
        (replace(PAGED, logits_soft_cap=50.0, sliding_window=4096, has_sinks=True), "paged"),
        (replace(PAGED, logits_soft_cap=50.0, kv_dtype=torch.float8_e4m3fn), "paged"),
        (replace(PAGED, logits_soft_cap=50.0, block_size=1), "tokens"),
        (replace(LLAMA, has_alibi=True), "packed"),
        (replace(PAGED, has_alibi=True, sliding_window=128, has_sinks=True), "paged"),
        (replace(PAGED, has_alibi=True, cache_layouts=SPLIT_BY_TOKEN), "split"),
    ],
)
def test_served(request_: AttentionRequest, keys: str, kernels: Catalogue) -> None:
    asked: list[Family] = []

    def usable(found: Family) -> Verdict:
        asked.append(found)
        return refused("this very machine")

    assert verdict(request_, kernels, usable).why == "this very machine"
    ((kernel,),) = asked
    own = request_.head_size in (64, 128, 256) and request_.value_size == request_.head_size
    assert kernel.facts["padded"] is not own
    assert kernel.facts["head_size"] == (request_.head_size if own else padded_to(request_))
    assert kernel.facts["keys"] == keys
    windowed = request_.sliding_window is not None or request_.has_sinks
    mask = "window" if windowed else "none"
    mask = "capped" if request_.logits_soft_cap else "alibi" if request_.has_alibi else mask
    assert kernel.facts["mask"] == mask
    assert kernel.facts["stored"] == STORED[request_.kv_dtype or request_.dtype]


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (replace(LLAMA, dtype=torch.float32), "dtype torch.float32"),
        (
            replace(LLAMA, kv_dtype=torch.float8_e4m3fn),
            "packed keys and values in torch.float8_e4m3fn: the gfx950 kernels read bf16",
        ),
        (
            replace(PAGED, kv_dtype=torch.float16),
            "paged keys and values in torch.float16: the gfx950 kernels read bf16, e4m3 and e5m2",
        ),
        (
            replace(PAGED, kv_dtype=torch.float8_e4m3fnuz),
            "keys and values in torch.float8_e4m3fnuz: the gfx950 kernels read torch.bfloat16, ",
        ),
        (
            replace(
                PAGED, kv_dtype=torch.float8_e5m2, block_size=8, cache_layouts=SPLIT_BY_CHANNEL
            ),
            "block_size 8",
        ),
        (replace(LLAMA, head_size=264), "head_size 264: the gfx950 kernels have 64, 128 and 256"),
        (
            replace(PAGED, head_size=256, block_size=24),
            "head_size 256 of any_pages keys and values in torch.bfloat16: the gfx950 kernels have "
            "64 and 128",
        ),
        (
            replace(PAGED, head_size=96, kv_dtype=torch.float8_e4m3fn),
            "head_size 96 of paged keys and values in torch.float8_e4m3fn: the gfx950 kernels have "
            "64, 128 and 256",
        ),
        (
            replace(PAGED, head_size=256, kv_dtype=torch.float8_e5m2),
            "head_size 256 of paged keys and values in torch.float8_e5m2: the gfx950 kernels have "
            "64 and 128",
        ),
        (
            replace(PAGED, head_size=192, head_size_v=128, kv_dtype=torch.float8_e4m3fn),
            "values of 128 channels with keys of 192, paged in torch.float8_e4m3fn: not in ",
        ),
        (
            replace(LLAMA, head_size_v=64, logits_soft_cap=30.0),
            "values of 64 channels with keys of 128, packed in torch.bfloat16, with logits_soft",
        ),
        (
            replace(LLAMA, sliding_window=4096, causal=False),
            "sliding_window that is not causal: not in the gfx950 kernels",
        ),
        (
            replace(PAGED, sliding_window=4096, kv_dtype=torch.float8_e5m2),
            "sliding_window with keys and values in torch.float8_e5m2: not in the gfx950 kernels",
        ),
        (
            replace(PAGED, has_sinks=True, kv_dtype=torch.float8_e5m2),
            "sinks with keys and values in torch.float8_e5m2: not in the gfx950 kernels",
        ),
        (
            replace(LLAMA, sliding_window=4096, causal=False, logits_soft_cap=30.0),
            "sliding_window that is not causal: not in the gfx950 kernels",
        ),
        (
            replace(LLAMA, logits_soft_cap=30.0, has_alibi=True),
            "logits_soft_cap with alibi_slopes: not in the gfx950 kernels",
        ),
        (
            replace(LLAMA, logits_soft_cap=1025.0),
            "logits_soft_cap 1025, above 1024: not in the gfx950 kernels",
        ),
        (
            replace(PAGED, logits_soft_cap=30.0, kv_dtype=torch.float8_e5m2),
            "logits_soft_cap with keys and values in torch.float8_e5m2: not in the gfx950 kernels",
        ),
        (
            replace(PAGED, logits_soft_cap=30.0, kv_dtype=torch.float8_e4m3fn, head_size=64),
            "logits_soft_cap with head_size 64 and keys and values in torch.float8_e4m3fn: not in ",
        ),
        (
            replace(PAGED, logits_soft_cap=30.0, block_size=24),
            "logits_soft_cap with blocks of no multiple of 16 tokens: not in the gfx950 kernels",
        ),
        (
            replace(LLAMA, has_alibi=True, causal=False),
            "alibi_slopes that are not causal: not in the gfx950 kernels",
        ),
        (
            replace(PAGED, has_alibi=True, kv_dtype=torch.float8_e4m3fn),
            "alibi_slopes with keys and values in torch.float8_e4m3fn: not in the gfx950 kernels",
        ),
        (
            replace(PAGED, has_alibi=True, block_size=8),
            "alibi_slopes with blocks of no multiple of 16 tokens: not in the gfx950 kernels",
        ),
        (replace(PAGED, block_size=24, cache_layouts=SPLIT_BY_CHANNEL), "block_size 24"),
        (replace(PAGED, cache_layouts=("B H D N", "B H N D")), 'cache with keys as "B H D N"'),
        (replace(PAGED, cache_layouts=("B H D/x N x", "B H N D")), 'values as "B H N D"'),
        (replace(PAGED, cache_layouts=("B H N D", "B H N/x D x")), 'values as "B H N/x'),
        (
            replace(PAGED, cache_layouts=("B H N/x D/y x y", "B H D/y N/x y x")),
            'cache with keys as "B H N/x D/y x y" and values as "B H D/y N/x y x"',
        ),
        (
            replace(PAGED, cache_layouts=("B H N/y D/x y x", "B H D/y N/x y x")),
            'cache with keys as "B H N/y D/x y x" and values as "B H D/y N/x y x"',
        ),
        (replace(PAGED, cache_layouts=("B N/x H x D", "B N/x H x D")), 'keys as "B N/x H x D"'),
        (replace(PAGED, cache_layouts=("B H D/x N x", "B H D/y N/x y x")), 'values as "B H D/y'),
    ],
)
def test_refused(request_: AttentionRequest, why: str, kernels: Catalogue) -> None:
    refusal = verdict(request_, kernels, never_asked)
    assert not refusal
    assert why in refusal.why
    assert "\n" not in refusal.why


def test_an_arch_without_a_kernel() -> None:
    assert "kernels have no size" in verdict(LLAMA, NO_KERNELS, never_asked).why
