"""Which kernels read a paged cache, and where they are told that its keys and values lie."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hk_backend.devices.hip import attention
from hk_backend.terms.paged_kv import PagedKV
from tests.devices.hip.attention_call import paged, prepared
from tests.kernels.attention_launch import SPLIT_LAYOUTS
from tests.ops.layouts import LAYOUTS


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


def test_a_cache_whose_tokens_are_not_evenly_apart() -> None:
    """Eight tokens of a head together, then those of the next head."""
    view, layout = torch.zeros(8, 2, 2, 8, 64, dtype=torch.bfloat16), "B N/x H x D"
    changes = paged("NHD, two tensors")
    changes["paged_kv"] = PagedKV.from_views(view, layout, view, layout)
    with pytest.raises(ValueError, match="paged_kv: keys with 8 tokens and 64"):
        prepared(**changes)


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


@pytest.mark.parametrize("block_size", [1, 3])
def test_rows_that_cannot_be_numbered(block_size: int) -> None:
    """From a block to the next they must be a whole number of rows, of keys and values alike."""
    changes = paged("NHD, two tensors", block_size)
    cache = changes["paged_kv"]
    for far in (cache.key.strides[0] + 8, 2 * cache.key.strides[0]):
        key = replace(cache.key, strides=(far, *cache.key.strides[1:]))
        message = rf"paged_kv: strides of .* with blocks of {block_size} tokens"
        with pytest.raises(ValueError, match=message):
            prepared(**{**changes, "paged_kv": replace(cache, key=key)})


def test_rows_of_keys_and_values_that_are_not_equally_far_apart() -> None:
    """A lane has one product for both; a block is as long of either."""
    changes = paged("NHD, two tensors", 3)
    cache = changes["paged_kv"]
    assert cache.key.strides[3] > cache.head_size
    key = replace(cache.key, strides=(*cache.key.strides[:3], 64, *cache.key.strides[4:]))
    with pytest.raises(ValueError, match=r"key_token 64, .* keys and values equally far"):
        prepared(**{**changes, "paged_kv": replace(cache, key=key)})


def test_blocks_that_lie_too_far_apart() -> None:
    """Byte offsets of a block's rows are 32 bits; nothing of this size is touched."""
    changes = paged("one [B,H,N,2D]")
    cache = changes["paged_kv"]
    far = replace(cache.key, strides=(1 << 31, *cache.key.strides[1:]))
    changes["paged_kv"] = replace(cache, key=far)
    with pytest.raises(ValueError, match=r"key_block: a stride of 2147483648 elements .* 0 to"):
        prepared(**changes)
