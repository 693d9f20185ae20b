"""The proof of a cache's form: what it accepts, what it finds; it leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hk_backend.engine import cache_proof
from hk_backend.engine.cache_proof import UnknownCacheForm, prove
from hk_backend.ops import PagedKV

BLOCKS, BLOCK_SIZE, HEADS, SIZE = 3, 8, 8, 16
SCALES = [1e-3, 0.005, 1.0, 20.0]
"""A checkpoint's is the largest value by 448: far below 1 for values."""


@pytest.fixture(autouse=True)
def unproven(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cache_proof, "_proven", set())
    return


class Cache:
    """`[2, blocks, tokens, heads, channels]`, written as an engine does."""

    def __init__(self, dtype: torch.dtype, scales: tuple[float, float] = (1.0, 1.0)) -> None:
        shape = (2, BLOCKS, BLOCK_SIZE, HEADS, SIZE)
        self.pages = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
        self.scales = scales
        self.writes = 0

    def write(self, key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor) -> None:
        self.writes += 1
        for pages, new, scale in zip(self.pages, (key, value), self.scales, strict=True):
            stored = torch.uint8 if pages.itemsize == 1 else pages.dtype
            flat = pages.view(-1, HEADS, SIZE).view(stored)
            divided = new if scale == 1.0 else new.float() / scale
            flat[slots] = divided.to(pages.dtype).view(flat.dtype)

    def prove(self, layout: str = "B N H D", dtype: torch.dtype = torch.bfloat16) -> None:
        paged = PagedKV.from_views(self.pages[0], layout, self.pages[1], layout)
        scales = torch.tensor([self.scales[0]]), self.scales[1]
        prove(paged, dtype, scales, list(self.pages[:, 0]), self.write, (layout, paged.dtype))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("k_scale", SCALES)
@pytest.mark.parametrize("v_scale", SCALES)
def test_scales_of_any_size(dtype: torch.dtype, k_scale: float, v_scale: float) -> None:
    Cache(dtype, (k_scale, v_scale)).prove()


@pytest.mark.parametrize("wrong", [0.5, 0.98, 1.02, 2.0])
@pytest.mark.parametrize("scale", SCALES)
def test_a_writer_with_another_scale(scale: float, wrong: float) -> None:
    cache = Cache(torch.float8_e4m3fn, (scale, scale))
    write = cache.write

    def other(key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor) -> None:
        write(key * wrong, value, slots)

    cache.write = other  # type: ignore[method-assign]
    with pytest.raises(UnknownCacheForm, match="written keys read back differ"):
        cache.prove()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_another_layout(dtype: torch.dtype) -> None:
    """Heads and tokens the other way round."""
    cache = Cache(dtype)
    with pytest.raises(UnknownCacheForm, match="written keys read back differ"):
        cache.prove("B H N D")


def test_it_leaves_nothing_behind_and_is_done_once() -> None:
    cache = Cache(torch.bfloat16)
    before = cache.pages.clone()
    for _ in range(2):
        cache.prove()
    assert torch.equal(cache.pages, before)
    assert cache.writes == 1
