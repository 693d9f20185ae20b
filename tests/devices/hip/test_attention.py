"""What the GPU kernels compute, one reason for each thing that they do not, and a call's arguments;
before anything runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from hk_backend.devices.hip import attention
from hk_backend.kernels import Catalogue, Family
from hk_backend.kernels.entry import Fact, Tile
from hk_backend.ops import AttentionRequest
from hk_backend.terms.verdict import Verdict, refused
from tests.devices.hip.attention_call import SPLIT_BY_CHANNEL, SPLIT_BY_TOKEN, paged, prepared
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
    return 128 if request.head_size < 128 else 256


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

    assert attention.verdict(request_, kernels, usable).why == "this very machine"
    ((kernel,),) = asked
    own = request_.head_size in (64, 128, 256)
    assert kernel.facts["padded"] is not own
    assert kernel.facts["head_size"] == (request_.head_size if own else padded_to(request_))
    assert kernel.facts["keys"] == keys
    windowed = request_.sliding_window is not None or request_.has_sinks
    mask = "window" if windowed else "none"
    mask = "capped" if request_.logits_soft_cap else "alibi" if request_.has_alibi else mask
    assert kernel.facts["mask"] == mask
    assert kernel.facts["stored"] == attention.STORED[request_.kv_dtype or request_.dtype]


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
    ],
)
def test_refused(request_: AttentionRequest, why: str, kernels: Catalogue) -> None:
    verdict = attention.verdict(request_, kernels, never_asked)
    assert not verdict
    assert why in verdict.why
    assert "\n" not in verdict.why


def test_an_arch_without_a_kernel() -> None:
    assert "kernels have no size" in attention.verdict(LLAMA, NO_KERNELS, never_asked).why


# --- the call itself --------------------------------------------------------------------------


def test_a_packed_call() -> None:
    call = prepared()
    assert [kernel.name for kernel in call.kernels] == ["attention_prefill_bf16_d64_packed"]
    assert set(call.tensors) == {
        "query",
        "key",
        "value",
        "out",
        "query_start_loc",
        "key_start_loc",
    }
    assert call.tensors["key_start_loc"].tolist() == [0, 5, 12], "the queries' by default"
    expected = {
        "query_token": 256,
        "query_head": 64,
        "key_token": 128,
        "key_head": 64,
        "value_token": 128,
        "out_token": 256,
        "num_requests": 2,
        "num_tokens": 12,
        "num_heads": 4,
        "num_kv_heads": 2,
        "causal": 1,
        "window": 2**30,
        "scale": 0.5,
        "value_factor": 2.0,
    }
    assert {name: call.numbers[name] for name in expected} == expected


def per_head(*shape: int) -> torch.Tensor:
    return torch.arange(1.0, 1 + math.prod(shape)).view(shape)


@pytest.mark.parametrize(
    ("k_scale", "v_scale", "pointers", "strides", "factors"),
    [
        (0.25, 3.0, set(), (0, 0), (0.5 * 0.25, 3.0)),
        (per_head(2), per_head(2), {"key", "value"}, (1, 1), (0.5, 1.0)),
        (per_head(1), per_head(2), {"key", "value"}, (0, 1), (0.5, 1.0)),
        (0.25, per_head(1), {"value"}, (0, 0), (0.5 * 0.25, 1.0)),
        (per_head(2, 3)[:, 1], 3.0, {"key"}, (3, 0), (0.5, 3.0)),
    ],
)
def test_the_scales_of_an_fp8_cache(
    k_scale: torch.Tensor | float,
    v_scale: torch.Tensor | float,
    pointers: set[str],
    strides: tuple[int, int],
    factors: tuple[float, float],
) -> None:
    """Numbers become those of the scores and of the output; tensors are handed over as they are:
    they are on the GPU, and reading one would wait for it."""
    changes = paged("NHD, two tensors", kv_dtype=torch.float8_e4m3fn)
    call = prepared(**changes, k_scale=k_scale, v_scale=v_scale)
    given = {"key_scale": k_scale, "value_scale": v_scale}
    assert {name for name in given if name in call.tensors} == {
        f"{name}_scale" for name in pointers
    }
    assert all(call.tensors[f"{name}_scale"] is given[f"{name}_scale"] for name in pointers)
    numbers = call.numbers
    assert (numbers["key_scale_head"], numbers["value_scale_head"]) == strides
    assert (numbers["scale"], numbers["value_factor"]) == factors


@pytest.mark.parametrize(
    ("window", "sinks", "handed_over"),
    [(7, None, 7), (2**40, None, 2**30), (None, torch.zeros(4), 2**30), (1, torch.zeros(4), 1)],
)
def test_windows_and_sinks(
    window: int | None, sinks: torch.Tensor | None, handed_over: int
) -> None:
    """Kernels of their own; sinks are handed over as they are."""
    call = prepared(sliding_window=window, sinks=sinks)
    assert [kernel.facts["mask"] for kernel in call.kernels] == ["window"]
    assert call.numbers["window"] == handed_over
    assert call.tensors.get("sinks") is sinks


@pytest.mark.parametrize("window", [None, 7])
def test_soft_caps_and_slopes(window: int | None) -> None:
    """Kernels of their own, with a window or without; slopes are handed over as they are."""
    capped = prepared(sliding_window=window, logits_soft_cap=30.0)
    assert [kernel.facts["mask"] for kernel in capped.kernels] == ["capped"]
    assert capped.numbers["soft_cap"] == 30.0
    slopes = torch.zeros(4)
    biased = prepared(sliding_window=window, alibi_slopes=slopes)
    assert [kernel.facts["mask"] for kernel in biased.kernels] == ["alibi"]
    assert biased.tensors["alibi_slopes"] is slopes
    assert {call.numbers["window"] for call in (capped, biased)} == {window or 2**30}


@pytest.mark.parametrize("name", ["sinks", "alibi_slopes"])
def test_what_lies_apart_is_brought_together(name: str) -> None:
    call = prepared(**{name: torch.arange(8.0)[::2]})
    assert call.tensors[name].stride() == (1,)


def test_a_scale_that_slopes_cannot_be_divided_by() -> None:
    for scale in (0.0, 2.0**-64, -(2.0**-64)):
        prepared(alibi_slopes=torch.ones(4), scale=scale)
    with pytest.raises(ValueError, match=r"scale: .* with alibi_slopes is not valid .* or more"):
        prepared(alibi_slopes=torch.ones(4), scale=2.0**-65)


def test_the_log_sum_exp_may_have_any_strides() -> None:
    for lse, strides in (
        (torch.empty(4, 12), (12, 1)),
        (torch.empty(12, 4).T, (1, 4)),
        (torch.empty(4, 12, 3)[..., 0], (36, 3)),
    ):
        call = prepared(lse=lse)
        assert call.tensors["lse"] is lse
        assert (call.numbers["lse_head"], call.numbers["lse_token"]) == strides
    assert "lse" not in prepared().tensors, "the kernel gets a null pointer"


def strided(tensor: torch.Tensor, *stride: int) -> torch.Tensor:
    return torch.zeros(1 << 16, dtype=tensor.dtype).as_strided(tensor.shape, stride)


def test_layouts_that_the_kernels_cannot_read() -> None:
    query = prepared().tensors["query"]
    wide = torch.zeros(*query.shape[:2], 128, dtype=query.dtype)
    shifted = torch.zeros(query.numel() + 8, dtype=query.dtype)[1 : 1 + query.numel()]
    for name, tensor, why in (
        ("query", wide[:, :, ::2], "query: channel stride 2 is not valid"),
        ("out", wide[:, :, ::2], "out: channel stride 2 is not valid"),
        ("query", strided(query, 264, 65, 1), "query_head: a stride of 65 elements"),
        ("query", strided(query, 0, 64, 1), "query_token: a stride of 0 elements"),
        ("query", shifted.view(query.shape), "query: address 0x"),
    ):
        with pytest.raises(ValueError, match=why):
            prepared(**{name: tensor})


def test_rows_that_lie_too_far_apart() -> None:
    """A tile's byte offsets are 32 bits: 2^26 elements from token to token are too many."""
    shape = prepared().tensors["query"].shape
    for stride in (2**26 - 8, 2**26):
        far = torch.empty_strided(shape, (stride, 64, 1), dtype=torch.bfloat16, device="meta")
        if stride < 2**26:
            assert prepared(query=far).numbers["query_token"] == stride
            continue
        with pytest.raises(ValueError, match="query_token: a stride of 67108864 elements"):
            prepared(query=far)


@pytest.mark.parametrize("name", ["query", "out"])
def test_heads_that_lie_too_far_apart(name: str) -> None:
    """A wave's rows are of all heads of a group: they span less than 2^32 bytes."""
    shape = prepared().tensors["query"].shape
    for stride in (2**29, 2**30):  # two heads to a KV head, of two bytes
        far = torch.empty_strided(shape, (256, stride, 1), dtype=torch.bfloat16, device="meta")
        if stride < 2**30:
            assert prepared(**{name: far}).numbers[f"{name}_head"] == stride
            continue
        with pytest.raises(ValueError, match=f"{name}_head: a stride of 1073741824 elements"):
            prepared(**{name: far})


def test_more_rows_than_a_grid_may_have_tiles() -> None:
    shape = prepared().tensors["query"].shape
    for tokens in (2**21, 2**21 + 1):  # two rows to a token, 128 to a tile
        many = torch.empty((tokens, *shape[1:]), dtype=torch.bfloat16, device="meta")
        if tokens == 2**21:
            assert prepared(query=many, out=many).sizes["num_tokens"] == tokens
            continue
        with pytest.raises(ValueError, match="query: a length of 2097153"):
            prepared(query=many, out=many)


def test_a_lone_token_may_have_any_stride() -> None:
    """torch gives an axis of one element whatever stride it likes."""
    query = torch.zeros(1, 4, 64, dtype=torch.bfloat16).as_strided((1, 4, 64), (3, 64, 1))
    key = torch.zeros(1, 1, 64, dtype=torch.bfloat16).as_strided((1, 1, 64), (5, 7, 1))
    starts = torch.tensor([0, 1], dtype=torch.int32)
    call = prepared(
        query=query, key=key, value=key, out=torch.empty_like(query), query_start_loc=starts
    )
    assert call.numbers["query_token"] == 256
    assert call.numbers["key_token"] == call.numbers["key_head"] == 64


@pytest.mark.parametrize("scale", [2.0**127 * 1.01, -1e300])
def test_a_scale_past_float32(scale: float) -> None:
    with pytest.raises(ValueError, match=r"scale: .* is not valid .* at most 1.70141e\+38"):
        prepared(scale=scale)
