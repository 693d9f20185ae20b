"""What the GPU kernels compute, and one reason for each thing that they do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

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
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
NOT, HAVE = ": not in the gfx950 kernels", ": the gfx950 kernels have"


def packed(**changes: Any) -> AttentionRequest:
    return replace(LLAMA, **changes)


def paged(**changes: Any) -> AttentionRequest:
    return replace(PAGED, **changes)


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
            (paged(kv_dtype=kv_dtype, block_size=size, cache_layouts=layouts), keys)
            for kv_dtype in (E4M3, E5M2)
            for size, layouts, keys in (
                (16, None, "paged"),
                (1, None, "tokens"),
                (24, None, "any_pages"),
                (32, SPLIT_BY_CHANNEL, "split"),
                (32, SPLIT_BY_TOKEN, "split"),
            )
        ),
        (LLAMA, "packed"),
        (packed(head_size=64, dtype=torch.float16, kv_dtype=torch.float16), "packed"),
        (packed(kv_dtype=None, causal=False), "packed"),
        (packed(num_heads=9, num_kv_heads=3), "packed"),
        (PAGED, "paged"),
        (paged(block_size=48), "paged"),
        (paged(block_size=1), "tokens"),
        (paged(block_size=8), "any_pages"),
        (paged(block_size=24), "any_pages"),
        (paged(cache_layouts=("B N H D", "B N H D")), "paged"),
        (paged(block_size=None, cache_layouts=None), "paged"),
        (paged(cache_layouts=SPLIT_BY_CHANNEL), "split"),
        (paged(cache_layouts=SPLIT_BY_TOKEN), "split"),
        (packed(sliding_window=4096), "packed"),
        (packed(head_size=256), "packed"),
        (paged(head_size=256, kv_dtype=E4M3, sliding_window=1), "paged"),
        *((packed(head_size=size), "packed") for size in (8, 72, 80, 96, 112, 120)),
        *((paged(head_size=size), "paged") for size in (136, 160, 192, 248)),
        (paged(head_size=96, block_size=1, has_sinks=True), "tokens"),
        (paged(head_size=160, cache_layouts=SPLIT_BY_TOKEN), "split"),
        (packed(head_size=192, head_size_v=128), "packed"),
        (packed(head_size=64, head_size_v=128), "packed"),
        (paged(head_size=192, head_size_v=128, sliding_window=9), "paged"),
        (paged(head_size=128, head_size_v=192, cache_layouts=SPLIT_BY_TOKEN), "split"),
        (paged(head_size=192, head_size_v=128, block_size=1), "tokens"),
        (packed(has_sinks=True, causal=False), "packed"),
        (paged(sliding_window=128, has_sinks=True, block_size=1), "tokens"),
        (paged(sliding_window=128, kv_dtype=E4M3), "paged"),
        (packed(logits_soft_cap=30.0), "packed"),
        (packed(logits_soft_cap=1024.0, causal=False), "packed"),
        (packed(logits_soft_cap=0.0), "packed"),
        (paged(logits_soft_cap=50.0, sliding_window=4096, has_sinks=True), "paged"),
        (paged(logits_soft_cap=50.0, kv_dtype=E4M3), "paged"),
        (paged(logits_soft_cap=50.0, block_size=1), "tokens"),
        (packed(has_alibi=True), "packed"),
        (paged(has_alibi=True, sliding_window=128, has_sinks=True), "paged"),
        (paged(has_alibi=True, cache_layouts=SPLIT_BY_TOKEN), "split"),
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
        (packed(dtype=torch.float32), "dtype torch.float32"),
        (
            packed(kv_dtype=E4M3),
            "packed keys and values in torch.float8_e4m3fn: the gfx950 kernels read bf16",
        ),
        (
            paged(kv_dtype=torch.float16),
            "paged keys and values in torch.float16: the gfx950 kernels read bf16, e4m3 and e5m2",
        ),
        (
            paged(kv_dtype=torch.float8_e4m3fnuz),
            "keys and values in torch.float8_e4m3fnuz: the gfx950 kernels read torch.bfloat16, ",
        ),
        (paged(kv_dtype=E5M2, block_size=8, cache_layouts=SPLIT_BY_CHANNEL), "block_size 8"),
        (packed(head_size=264), f"head_size 264{HAVE} 64, 128 and 256"),
        (
            paged(head_size=256, block_size=24),
            f"head_size 256 of any_pages keys and values in torch.bfloat16{HAVE} 64 and 128",
        ),
        (
            paged(head_size=96, kv_dtype=E4M3),
            f"head_size 96 of paged keys and values in torch.float8_e4m3fn{HAVE} 64, 128 and 256",
        ),
        (
            paged(head_size=256, kv_dtype=E5M2),
            f"head_size 256 of paged keys and values in torch.float8_e5m2{HAVE} 64 and 128",
        ),
        (
            paged(head_size=192, head_size_v=128, kv_dtype=E4M3),
            "values of 128 channels with keys of 192, paged in torch.float8_e4m3fn: not in ",
        ),
        (
            packed(head_size_v=64, logits_soft_cap=30.0),
            "values of 64 channels with keys of 128, packed in torch.bfloat16, with logits_soft",
        ),
        (packed(sliding_window=4096, causal=False), f"sliding_window that is not causal{NOT}"),
        (
            paged(sliding_window=4096, kv_dtype=E5M2),
            f"sliding_window with keys and values in torch.float8_e5m2{NOT}",
        ),
        (
            paged(has_sinks=True, kv_dtype=E5M2),
            f"sinks with keys and values in torch.float8_e5m2{NOT}",
        ),
        (
            packed(sliding_window=4096, causal=False, logits_soft_cap=30.0),
            f"sliding_window that is not causal{NOT}",
        ),
        (packed(logits_soft_cap=30.0, has_alibi=True), f"logits_soft_cap with alibi_slopes{NOT}"),
        (packed(logits_soft_cap=1025.0), f"logits_soft_cap 1025, above 1024{NOT}"),
        (
            paged(logits_soft_cap=30.0, kv_dtype=E5M2),
            f"logits_soft_cap with keys and values in torch.float8_e5m2{NOT}",
        ),
        (
            paged(logits_soft_cap=30.0, kv_dtype=E4M3, head_size=64),
            "logits_soft_cap with head_size 64 and keys and values in torch.float8_e4m3fn: not in ",
        ),
        (
            paged(logits_soft_cap=30.0, block_size=24),
            f"logits_soft_cap with blocks of no multiple of 16 tokens{NOT}",
        ),
        (packed(has_alibi=True, causal=False), f"alibi_slopes that are not causal{NOT}"),
        (
            paged(has_alibi=True, kv_dtype=E4M3),
            f"alibi_slopes with keys and values in torch.float8_e4m3fn{NOT}",
        ),
        (
            paged(has_alibi=True, block_size=8),
            f"alibi_slopes with blocks of no multiple of 16 tokens{NOT}",
        ),
        (paged(block_size=24, cache_layouts=SPLIT_BY_CHANNEL), "block_size 24"),
        (paged(cache_layouts=("B H D N", "B H N D")), 'cache with keys as "B H D N"'),
        (paged(cache_layouts=("B H D/x N x", "B H N D")), 'values as "B H N D"'),
        (paged(cache_layouts=("B H N D", "B H N/x D x")), 'values as "B H N/x'),
        (
            paged(cache_layouts=("B H N/x D/y x y", "B H D/y N/x y x")),
            'cache with keys as "B H N/x D/y x y" and values as "B H D/y N/x y x"',
        ),
        (
            paged(cache_layouts=("B H N/y D/x y x", "B H D/y N/x y x")),
            'cache with keys as "B H N/y D/x y x" and values as "B H D/y N/x y x"',
        ),
        (paged(cache_layouts=("B N/x H x D", "B N/x H x D")), 'keys as "B N/x H x D"'),
        (paged(cache_layouts=("B H D/x N x", "B H D/y N/x y x")), 'values as "B H D/y'),
    ],
)
def test_refused(request_: AttentionRequest, why: str, kernels: Catalogue) -> None:
    refusal = verdict(request_, kernels, never_asked)
    assert not refusal
    assert why in refusal.why
    assert "\n" not in refusal.why


def test_an_arch_without_a_kernel() -> None:
    assert "kernels have no size" in verdict(LLAMA, NO_KERNELS, never_asked).why
