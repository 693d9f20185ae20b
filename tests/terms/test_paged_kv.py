"""`PagedKV`: addresses from layout strings, and refusals."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

from hk_backend.ops import CacheView, PagedKV
from tests.ops.layouts import LAYOUTS

SIZES = (3, 2, 16, 32)  # blocks, KV heads, tokens of a block, channels


def numbered(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Canonical caches whose elements are their own index (values: minus the index)."""
    index = torch.arange(3 * 2 * 16 * 32).view(SIZES)
    return index.to(dtype), -index.to(dtype)


def element(view: CacheView, block: int, head: int, token: int, channel: int) -> float:
    """One element by the formula in CacheView's docstring, read from raw storage."""
    s = view.strides
    offset = block * s[0] + head * s[1]
    offset += token // view.token_split * s[2] + token % view.token_split * s[3]
    offset += channel // view.channel_split * s[4] + channel % view.channel_split * s[5]
    storage = torch.as_strided(view.tensor, (1,), (1,), view.tensor.storage_offset() + offset)
    return float(storage.item())


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_element_of_every_layout(name: str) -> None:
    keys, values = numbered(torch.float32)
    cache = LAYOUTS[name].build(keys, values)
    assert (cache.num_blocks, cache.num_kv_heads, cache.block_size, cache.head_size) == SIZES
    assert cache.dtype == torch.float32
    for place in ((0, 0, 0, 0), (2, 1, 15, 31), (1, 0, 3, 17), (2, 0, 7, 4), (0, 1, 4, 8)):
        assert element(cache.key, *place) == keys[place].item()
        assert element(cache.value, *place) == values[place].item()


def test_numbers_that_cross_the_schema() -> None:
    keys, values = numbered(torch.float32)
    cache = LAYOUTS["CPU_ATTN: K [D,N], V [N,D], one storage"].build(keys, values)
    plane = 16 * 32
    key = [4 * plane, 2 * plane, 0, 1, 0, 16, 16, 32]
    value = [4 * plane, 2 * plane, 0, 32, 0, 1, 16, 32]
    assert cache.as_ints() == [*key, *value, 3, 16, 2, 32, 32]
    narrow = PagedKV.from_views(CACHE, "B H N D", torch.zeros(3, 2, 16, 8), "B H N D")
    assert (narrow.head_size, narrow.value_size) == (32, 8)
    for each in (cache, narrow):
        parts = (each.key.tensor, each.value.tensor)
        assert PagedKV.from_ints(*parts, each.as_ints()) == each


def test_both_axes_split() -> None:
    """No two sizes and no two strides are alike."""
    tensor = torch.zeros(3, 2, 5, 4, 16, 2)
    cache = PagedKV.from_views(tensor, "B H N/x D/y x y", tensor, "B H N/y D/x y x")
    assert (cache.num_blocks, cache.num_kv_heads, cache.block_size, cache.head_size) == (
        3,
        2,
        80,
        8,
    )
    assert cache.key.as_ints() == [1280, 640, 128, 2, 32, 1, 16, 2]
    assert cache.value == cache.key
    other = PagedKV.from_views(tensor, "B H D/x N/y x y", tensor, "B H D/y N/x y x")
    assert (other.block_size, other.head_size) == (8, 80)
    assert other.key.as_ints() == [1280, 640, 32, 1, 128, 2, 2, 16]
    assert other.value == other.key


CACHE = torch.zeros(3, 2, 16, 32)
BAD = {
    "unknown axis": (CACHE, "B H N C", "key_layout", "'B H N C'"),
    "axis missing": (CACHE[0], "H N D", "key_layout", "'H N D'"),
    "axis twice": (CACHE, "B H N N", "key_layout", "'B H N N'"),
    "split without inner part": (CACHE, "B H N D/x", "key_layout", "'B H N D/x'"),
    "inner part without split": (CACHE[None], "B H N D x", "key_layout", "'B H N D x'"),
    "one inner part of two": (CACHE[None], "B H N/x D/x x", "key_layout", "'B H N/x D/x x'"),
    "inner parts alike": (CACHE[None, None], "B H N/x D/x x x", "key_layout", "'B H N/x D/x x x'"),
    "inner part of another name": (CACHE[None], "B H N/z D z", "key_layout", "'B H N/z D z'"),
    "inner part without name": (CACHE, "B H N/ D", "key_layout", "'B H N/ D'"),
    "inner part in parts": (CACHE, "B H N/x/y D", "key_layout", "'B H N/x/y D'"),
    "N split twice": (CACHE[None, None], "B H N/x N/y x y", "key_layout", "'B H N/x N/y x y'"),
    "one of two missing": (CACHE[None], "B H N/x D/y x", "key_layout", "'B H N/x D/y x'"),
    "head split": (CACHE[None], "B H/x N D x", "key_layout", "'B H/x N D x'"),
    "empty": (CACHE, "", "key_layout", "''"),
    "no spaces": (CACHE, "BHND", "key_layout", "'BHND'"),
    "too few axes": (CACHE[0], "B H N D", "key", "(2, 16, 32)"),
    "too many axes": (CACHE[None], "B H N D", "key", "(1, 3, 2, 16, 32)"),
}


@pytest.mark.parametrize(("tensor", "layout", "name", "value"), BAD.values(), ids=BAD)
def test_bad_layout(tensor: torch.Tensor, layout: str, name: str, value: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: .*{re.escape(value)}"):
        PagedKV.from_views(tensor, layout, CACHE, "B H N D")


BAD_VALUES = {
    "other blocks": (torch.zeros(4, 2, 16, 32), r"^value: .*\(4, 2, 16\).*\(3, 2, 16\)"),
    "other heads": (torch.zeros(3, 1, 16, 32), r"^value: .*\(3, 1, 16\).*\(3, 2, 16\)"),
    "other dtype": (CACHE.half(), r"^value: torch\.float16.*torch\.float32"),
    "other device": (CACHE.to("meta"), r"^value: .*meta.*cpu"),
}


@pytest.mark.parametrize(("value", "message"), BAD_VALUES.values(), ids=BAD_VALUES)
def test_keys_and_values_that_disagree(value: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PagedKV.from_views(CACHE, "B H N D", value, "B H N D")


@pytest.mark.parametrize(
    ("build", "cache", "layout", "message"),
    [
        (PagedKV.from_packed, CACHE, "B H N D", r'^layout: \'B H N D\' .*"2D"'),
        (PagedKV.from_packed, CACHE[..., :31], "B H N 2D", r"^cache: .*\(3, 2, 16, 31\)"),
        (PagedKV.from_packed, CACHE[0], "B H N 2D", r"^cache: .*\(2, 16, 32\)"),
        (PagedKV.from_pair, CACHE, "B H N D", r"^layout: 'B H N D' "),
        (PagedKV.from_pair, CACHE, "2 B H N D", r"^layout: '2 B H N D' .*\(3, 2, 16, 32\)"),
        (PagedKV.from_pair, CACHE[:, None], "2 B H N D", r"^cache: axis 0 has size 3, not 2"),
    ],
)
def test_one_tensor_that_does_not_fit(
    build: Callable[..., PagedKV], cache: torch.Tensor, layout: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build(cache, layout)
