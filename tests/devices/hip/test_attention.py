"""Arguments of an attention call and of its cache for the GPU kernels, before anything runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from hk_backend.devices.hip import attention_launch
from hk_backend.devices.hip.attention_prefill import OPERATOR
from hk_backend.kernels import catalogue, masks
from hk_backend.kernels.attention_plan import LaunchSizes, choose
from hk_backend.kernels.row_sources import block_reciprocal
from hk_backend.terms.requests import AttentionRequest
from tests.devices.hip.attention_call import paged, prepared
from tests.kernels.attention_launch import SPLIT_LAYOUTS
from tests.ops.layouts import LAYOUTS

FORMATS = (torch.bfloat16, torch.float8_e4m3fn)


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
    """Numeric scales become part of the scales of scores and output. Tensors are passed on unread:
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


def test_a_scale_that_slopes_cannot_be_divided_by() -> None:
    for scale in (0.0, 2.0**-64, -(2.0**-64)):
        prepared(alibi_slopes=torch.ones(4), scale=scale)
    with pytest.raises(ValueError, match=r"scale: .* with alibi_slopes is not valid .* or more"):
        prepared(alibi_slopes=torch.ones(4), scale=2.0**-65)


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


@pytest.mark.parametrize(
    ("name", "number", "stride", "most", "limit"),
    [
        # byte offsets in a tile are 32 bits
        ("query", "query_token", lambda n: (n, 64, 1), 2**26 - 8, 2**26),
        # a wave's rows are of all heads of a group: two to a KV head, of two bytes
        ("query", "query_head", lambda n: (256, n, 1), 2**29, 2**30),
        ("out", "out_head", lambda n: (256, n, 1), 2**29, 2**30),
    ],
)
def test_rows_that_lie_too_far_apart(
    name: str, number: str, stride: Callable[[int], tuple[int, ...]], most: int, limit: int
) -> None:
    shape = prepared().tensors["query"].shape
    near, far = (
        torch.empty_strided(shape, stride(n), dtype=torch.bfloat16, device="meta")
        for n in (most, limit)
    )
    assert prepared(**{name: near}).numbers[number] == most
    with pytest.raises(ValueError, match=f"{number}: a stride of {limit} elements"):
        prepared(**{name: far})


def test_more_rows_than_a_grid_may_have_tiles() -> None:
    """Each token has two rows, and each tile 128."""
    shape = prepared().tensors["query"].shape
    most, more = (
        torch.empty((tokens, *shape[1:]), dtype=torch.bfloat16, device="meta")
        for tokens in (2**21, 2**21 + 1)
    )
    assert prepared(query=most, out=most).sizes["num_tokens"] == 2**21
    with pytest.raises(ValueError, match="query: a length of 2097153"):
        prepared(query=more, out=more)


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


def test_values_of_another_size() -> None:
    """Padded kernels get both sizes; each tensor's rows are at least as long as its own."""
    for value_size in (128, 40):
        value = torch.zeros(12, 2, value_size, dtype=torch.bfloat16)
        call = prepared(value=value, out=value.new_zeros(12, 4, value_size))
        assert [kernel.facts["padded"] for kernel in call.kernels] == [True]
        assert (call.numbers["head_size"], call.numbers["value_size"]) == (64, value_size)
        assert call.numbers["value_token"] == 2 * value_size
        assert call.numbers["out_token"] == 4 * value_size
    short = value.as_strided(value.shape, (32, 40, 1))
    with pytest.raises(ValueError, match=r"value_token: a stride of 32 .* at least 40"):
        prepared(value=short, out=value.new_zeros(12, 4, 40))
    with pytest.raises(
        ValueError, match=r"value: values of 40 channels with keys of 64, packed in"
    ):
        prepared(value=value, out=value.new_zeros(12, 4, 40), logits_soft_cap=3.0)


@pytest.mark.parametrize("scale", [2.0**127 * 1.01, -1e300])
def test_a_scale_past_float32(scale: float) -> None:
    with pytest.raises(ValueError, match=r"scale: .* is not valid .* at most 1.70141e\+38"):
        prepared(scale=scale)


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
    """Tensors of such sizes are never read, since the refusal comes first."""
    changes = paged(SPLIT_LAYOUTS[0])
    cache = changes["paged_kv"]
    block, head, outer, token, _, inner = cache.key.strides
    key = replace(cache.key, strides=(block, head, outer, token, key_piece, inner))
    block, head, outer, token, channel_outer, _ = cache.value.strides
    value = replace(cache.value, strides=(block, head, outer, token, channel_outer, value_piece))
    changes["paged_kv"] = replace(cache, key=key, value=value)
    with pytest.raises(ValueError, match=why):
        prepared(**changes)


def test_rows_of_an_fp8_cache_begin_at_multiples_of_16_bytes() -> None:
    """An element of an FP8 cache is one byte: a stride that is 8 elements longer is refused."""
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


@pytest.mark.parametrize(
    ("layout", "block_size", "why"),
    [
        *(
            (name, 16, "paged_kv: keys with")
            for name in LAYOUTS
            if name.startswith(("CPU", "token"))
        ),
        ("padded rows", 16, r"key_\w+: a stride of \d+ elements .* a multiple of 8"),
        (SPLIT_LAYOUTS[0], 8, "paged_kv: block_size 8 is not valid"),
    ],
)
def test_caches_that_the_kernels_cannot_read(layout: str, block_size: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        prepared(**paged(layout, block_size))


@pytest.mark.parametrize("block_size", [1, 3])
def test_rows_that_cannot_be_numbered(block_size: int) -> None:
    """The distance between blocks must be a whole number of rows, of keys and values alike."""
    changes = paged("NHD, two tensors", block_size)
    cache = changes["paged_kv"]
    for far in (cache.key.strides[0] + 8, 2 * cache.key.strides[0]):
        key = replace(cache.key, strides=(far, *cache.key.strides[1:]))
        message = rf"paged_kv: strides of .* with blocks of {block_size} tokens"
        with pytest.raises(ValueError, match=message):
            prepared(**{**changes, "paged_kv": replace(cache, key=key)})


def test_blocks_that_lie_too_far_apart() -> None:
    """Byte offsets of a block's rows are 32 bits; no tensor of such a size is ever read."""
    changes = paged("one [B,H,N,2D]")
    cache = changes["paged_kv"]
    far = replace(cache.key, strides=(1 << 31, *cache.key.strides[1:]))
    changes["paged_kv"] = replace(cache, key=far)
    with pytest.raises(ValueError, match=r"key_block: a stride of 2147483648 elements .* 0 to"):
        prepared(**changes)


@pytest.mark.parametrize(("keys", "dtype"), list(itertools.product(("paged", "split"), FORMATS)))
def test_rows_of_a_block_that_lie_too_far_apart(keys: str, dtype: torch.dtype) -> None:
    """Blocks may lie between the rows of one, as in `[N, B, H, D]`: the kernels multiply a row's
    number in 32 bits. No tensor of such a size is ever read."""
    changes = paged("NHD, two tensors" if keys == "paged" else SPLIT_LAYOUTS[0], 128, dtype)
    cache = changes["paged_kv"]
    most = (2**32 - 1) // (127 * dtype.itemsize) // 16 * 16
    for name in ("key", "value") if keys == "paged" else ("key",):
        view = getattr(cache, name)
        for apart in (most, most + 16):
            strides = (*view.strides[:3], apart, *view.strides[4:])
            changes["paged_kv"] = replace(cache, **{name: replace(view, strides=strides)})
            if apart == most:
                assert prepared(**changes).numbers[f"{name}_token"] == most
                continue
            why = rf"{name}_token: a stride of {apart} elements .* with blocks of 128 tokens"
            with pytest.raises(ValueError, match=why):
                prepared(**changes)


def test_more_keys_than_a_block_s_reciprocal_divides() -> None:
    """Past 2^39 / 53152 keys the kernels would look up the block before the right one."""
    changes = paged("NHD, two tensors", 53152)
    reciprocal = block_reciprocal("paged", 53152)
    last = 195 * 53152 - 16  # of block 194
    assert last * 53152 > 2**38
    assert last // 8 * reciprocal >> 32 != 194
    for width in (97, 98):
        table = torch.zeros(2, width, dtype=torch.int32)
        if width == 97:
            prepared(**{**changes, "block_table": table})
            continue
        with pytest.raises(ValueError, match=r"block_table: a row of 98 .* fewer than 98"):
            prepared(**{**changes, "block_table": table})


@pytest.mark.parametrize("group", [1, 8, 64, 1024])
def test_a_step_s_rows_are_within_a_grid_and_a_division(group: int) -> None:
    """The rows of a tile are divided by the group size; rows times group size stays below 2^31
    (divisor.hpp)."""
    kernels = catalogue("gfx950").families["attention_prefill"]
    grouped = [entry for entry in kernels if entry.facts["mask"] == masks.NO_MASK]
    tokens = attention_launch.most_tokens(grouped, group)
    rows = attention_launch.MOST_TILES * min(entry.tile.rows for entry in grouped)

    def fits(tokens: int) -> bool:
        return tokens * group <= rows and tokens * group * group < 2**31

    assert fits(tokens)
    assert not fits(tokens + 1)


@pytest.mark.parametrize("window", [None, 512])
def test_the_planned_time_of_a_prompt(window: int | None) -> None:
    """The planner gives the time of one fresh prompt, and a window makes it shorter."""
    request = AttentionRequest("cuda", torch.bfloat16, 64, 8, 128, sliding_window=window)
    units, kernels = 256, catalogue("gfx950")
    seen = masks.ALL_KEYS if window is None else window
    sizes = LaunchSizes(4096, 1, 4096, 64, 8, 128, grouped=window is None, window=seen)
    rows = (256, 128, 64) if window is None else (256, 128)
    found = OPERATOR.microseconds(request, 4096, kernels, units)
    assert found == choose(sizes, units, rows, parts=False).microseconds
    assert OPERATOR.microseconds(request, 8192, kernels, units) > found
