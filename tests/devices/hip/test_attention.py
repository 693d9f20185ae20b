"""What the GPU kernels do not compute, one reason each, before anything runs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from hk_backend.devices.hip import attention
from hk_backend.devices.hip.call import KernelCall
from hk_backend.kernels import Catalogue, Family, catalogue
from hk_backend.kernels.entry import Tile
from hk_backend.ops import AttentionRequest
from hk_backend.terms.paged_kv import PagedKV
from hk_backend.terms.verdict import Verdict, refused
from tests.kernels.attention_launch import SPLIT_LAYOUTS
from tests.kernels.catalogues import with_kernels
from tests.ops.cases import Case, arguments, make
from tests.ops.layouts import LAYOUTS

LLAMA = AttentionRequest(
    device_type="cuda",
    dtype=torch.bfloat16,
    num_heads=32,
    num_kv_heads=8,
    head_size=128,
    kv_dtype=torch.bfloat16,
)
SPLIT_BY_CHANNEL, SPLIT_BY_TOKEN = (
    ("B H D/x N x", values) for values in ("B H D N", "B H N/x D x")
)
PAGED = replace(LLAMA, paged=True, block_size=16, cache_layouts=("B H N D", "B H N D"))


@pytest.fixture(scope="module")
def kernels(small: Catalogue) -> Catalogue:
    """The catalogue of the kernels' facts; no code of theirs runs here."""
    entry = replace(small.kernel("fill"), operator="attention_prefill")
    return with_kernels(
        small,
        *(
            replace(
                entry,
                name=f"attention_prefill_{dtype}_d{size}_{keys}_{stored}",
                facts={"dtype": dtype, "head_size": size, "keys": keys, "stored": stored},
                tile=Tile(1, 1, size),
            )
            for dtype in ("bf16", "f16")
            for size in (64, 128)
            for keys in ("packed", "paged", "tokens", "any_pages", "split")
            for stored in (dtype, *(() if keys == "packed" else ("e4m3", "e5m2")))
        ),
    )


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
    ],
)
def test_served(request_: AttentionRequest, keys: str, kernels: Catalogue) -> None:
    asked: list[Family] = []

    def usable(found: Family) -> Verdict:
        asked.append(found)
        return refused("this very machine")

    assert attention.verdict(request_, kernels, usable).why == "this very machine"
    ((kernel,),) = asked
    assert kernel.facts["head_size"] == request_.head_size
    assert kernel.facts["keys"] == keys
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
        (replace(LLAMA, head_size=80), "head_size 80: the gfx950 kernels have 64 and 128"),
        (replace(LLAMA, sliding_window=4096), "sliding_window"),
        (replace(LLAMA, logits_soft_cap=30.0), "logits_soft_cap"),
        (replace(LLAMA, has_sinks=True), "sinks"),
        (replace(LLAMA, has_alibi=True), "alibi_slopes"),
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


def test_an_arch_without_a_kernel_for_the_format(small: Catalogue) -> None:
    """From the catalogue's contents: this one has no attention at all."""
    assert "kernels have no size" in attention.verdict(LLAMA, small, never_asked).why


# --- the call itself --------------------------------------------------------------------------


def prepared(**changes: Any) -> KernelCall:
    """A small call, prepared, with some arguments exchanged."""
    call = make(Case(((5, 5), (7, 7)), num_heads=4, num_kv_heads=2, dtype=torch.bfloat16))
    of = arguments(call, **{"scale": 0.5, "v_scale": 2.0, **changes})
    return attention.prepare(of, catalogue("gfx950"))


def paged(
    layout: str, block_size: int = 16, kv_dtype: torch.dtype = torch.bfloat16
) -> dict[str, Any]:
    lengths = ((5, 40), (7, 7))
    call = make(Case(lengths, 4, 2, 64, torch.bfloat16, kv_dtype, layout, block_size))
    names = ("query", "paged_kv", "seq_lens", "block_table")
    return {"key": None, "value": None, **{name: call[name] for name in names}}


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
        "scale": 0.5,
        "value_factor": 2.0,
    }
    assert {name: call.numbers[name] for name in expected} == expected


@pytest.mark.parametrize("layout", ["NHD, two tensors", "one [B,H,N,2D]"])
def test_a_paged_call(layout: str) -> None:
    changes = paged(layout)
    call = prepared(**changes)
    assert [kernel.name for kernel in call.kernels] == ["attention_prefill_bf16_d64_paged"]
    key = changes["paged_kv"].key.tensor
    axes = dict(zip("BNHD" if layout.startswith("NHD") else "BHND", key.stride(), strict=True))
    assert call.numbers["key_block"] == axes["B"]
    assert call.numbers["key_head"] == axes["H"]
    assert call.numbers["key_token"] == axes["N"]
    assert call.numbers["block_size"] == 16
    assert call.numbers["num_blocks"] == key.shape[0]
    assert call.numbers["block_table_row"] == changes["block_table"].stride(0)


@pytest.mark.parametrize(("kv_dtype", "x"), [(torch.bfloat16, 8), (torch.float8_e5m2, 16)])
@pytest.mark.parametrize("block_size", [16, 48])
@pytest.mark.parametrize("by_channel", [True, False])
def test_a_split_cache(by_channel: bool, block_size: int, kv_dtype: torch.dtype, x: int) -> None:
    """x elements are 16 bytes."""
    changes = paged(SPLIT_LAYOUTS[0 if by_channel else 1], block_size, kv_dtype)
    call = prepared(**changes)
    (kernel,) = call.kernels
    assert (kernel.facts["keys"], kernel.facts["stored"]) == ("split", attention.STORED[kv_dtype])
    by_channel |= block_size == x  # one group of tokens: the same memory
    whole = 64 * block_size  # of a head in a block
    expected = {
        "key_block": 2 * whole,
        "key_head": whole,
        "key_token": x,
        "key_piece": x * block_size,
        "value_block": 2 * whole,
        "value_head": whole,
        "value_token": 1 if by_channel else 64,
        "value_piece": block_size if by_channel else x,
    }
    assert {name: call.numbers[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("key_piece", "value_piece", "why"),
    [
        (128, 20, "value_piece 20 elements"),
        (132, 16, "key_piece 132 elements"),
        (128, 2**25, "values of 16 tokens over"),
        (2**28, 16, "keys of 16 tokens over"),
    ],
)
def test_pieces_that_the_kernels_cannot_read(key_piece: int, value_piece: int, why: str) -> None:
    """Nothing of these sizes is touched."""
    changes = paged(SPLIT_LAYOUTS[0])
    cache = changes["paged_kv"]
    block, head, outer, token, _, inner = cache.key.strides
    key = replace(cache.key, strides=(block, head, outer, token, key_piece, inner))
    block, head, outer, token, channel_outer, _ = cache.value.strides
    value = replace(cache.value, strides=(block, head, outer, token, channel_outer, value_piece))
    changes["paged_kv"] = replace(cache, key=key, value=value)
    with pytest.raises(ValueError, match=why):
        prepared(**changes)


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


def test_rows_of_an_fp8_cache_begin_at_multiples_of_16_bytes() -> None:
    """As many elements as bytes: 8 more are not enough."""
    changes = paged("NHD, two tensors", kv_dtype=torch.float8_e4m3fn)
    cache = changes["paged_kv"]
    block, head, *rest = cache.key.strides
    for stride, valid in ((head + 16, True), (head + 8, False)):
        key = replace(cache.key, strides=(block, stride, *rest))
        changes["paged_kv"] = replace(cache, key=key)
        if valid:
            assert prepared(**changes).numbers["key_head"] == stride
            continue
        with pytest.raises(
            ValueError, match=r"key_head: a stride of 72 elements .* multiple of 16"
        ):
            prepared(**changes)


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


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name.startswith(("CPU", "token"))])
def test_caches_that_the_kernels_cannot_read(layout: str) -> None:
    with pytest.raises(ValueError, match="paged_kv: keys with"):
        prepared(**paged(layout))


def test_a_cache_whose_tokens_are_not_evenly_apart() -> None:
    """Eight tokens of a head together, then those of the next head."""
    changes = paged("NHD, two tensors")
    views = [
        torch.zeros(len(view.tensor), 2, 2, 8, 64, dtype=torch.bfloat16)
        for view in (changes["paged_kv"].key, changes["paged_kv"].value)
    ]
    layout = "B N/x H x D"
    changes["paged_kv"] = PagedKV.from_views(views[0], layout, views[1], layout)
    with pytest.raises(ValueError, match="paged_kv: keys with 8 tokens and 64"):
        prepared(**changes)


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


def test_padded_rows_that_are_not_aligned() -> None:
    with pytest.raises(ValueError, match=r"key_\w+: a stride of \d+ elements .* a multiple of 8"):
        prepared(**paged("padded rows"))


def test_a_block_size_that_the_kernels_cannot_read() -> None:
    with pytest.raises(ValueError, match="paged_kv: block_size 8 is not valid"):
        prepared(**paged(SPLIT_LAYOUTS[0], 8))


@pytest.mark.parametrize("layout", ["NHD, two tensors", "one [B,H,N,2D]"])
@pytest.mark.parametrize("block_size", [1, 2, 24])
def test_blocks_whose_rows_each_lane_finds(layout: str, block_size: int) -> None:
    """A row's number is its block's times `block_rows`, and the tokens before it there."""
    changes = paged(layout, block_size)
    call = prepared(**changes)
    keys = "tokens" if block_size == 1 else "any_pages"
    assert [kernel.name for kernel in call.kernels] == [f"attention_prefill_bf16_d64_{keys}"]
    key = changes["paged_kv"].key.tensor
    axes = "BNHD" if layout.startswith("NHD") else "BHND"
    block, token = (key.stride(axes.index(axis)) for axis in "BN")
    assert call.numbers["block_rows"] * call.numbers["key_token"] == block
    if block_size > 1:
        assert call.numbers["key_token"] == token


def test_a_single_block_of_one_token() -> None:
    """Its stride may be anything: the only row is the first."""
    changes = paged("NHD, two tensors", 1)
    cache = changes["paged_kv"]
    changes["paged_kv"] = replace(cache, num_blocks=1)
    assert prepared(**changes).numbers["key_token"] == 64


def test_rows_that_cannot_be_numbered() -> None:
    """From a block to the next they must be a whole number of rows, of keys and values alike."""
    changes = paged("NHD, two tensors", 3)
    cache = changes["paged_kv"]
    for far in (cache.key.strides[0] + 8, 2 * cache.key.strides[0]):
        key = replace(cache.key, strides=(far, *cache.key.strides[1:]))
        with pytest.raises(ValueError, match=r"paged_kv: strides of .* with blocks of 3 tokens"):
            prepared(**{**changes, "paged_kv": replace(cache, key=key)})


def test_blocks_that_lie_too_far_apart() -> None:
    """Byte offsets of a block's rows are 32 bits; nothing of this size is touched."""
    changes = paged("one [B,H,N,2D]")
    cache = changes["paged_kv"]
    far = replace(cache.key, strides=(1 << 31, *cache.key.strides[1:]))
    changes["paged_kv"] = replace(cache, key=far)
    with pytest.raises(ValueError, match=r"key_block: a stride of 2147483648 elements .* 0 to"):
        prepared(**changes)


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
