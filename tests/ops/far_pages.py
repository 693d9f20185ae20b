"""The two-page probe: caches past 2^32 elements in which all but a few pages are poison.

A request has two pages, the last one that begins before a boundary and the next one. Every other
byte is NaN in every format, also in front of the cache, where a negative offset would lead. So one
wrong address makes its rows NaN. Poison is one small file, mapped over and over: a page takes
memory only when it is written.
"""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from hk_backend.ops import CacheView, PagedKV
from tests.ops.cases import Call, Case, make
from tests.ops.layouts import LAYOUTS

PIECE = 1 << 24
"""Bytes of the file of poison."""
BEFORE = 1 << 33
"""Bytes of poison in front of a cache: 2^31 elements of 4 bytes."""
MAP_FIXED, MAP_NORESERVE = 0x10, 0x4000
"""Linux's, which Python's mmap does not name."""
NEIGHBOURS = 192
"""Tokens whose pages, on both sides of each boundary, are more tiles than a kernel has steps."""
BEYOND = 1024
"""Blocks past the last boundary, and before the first."""


def poisoned(size: int) -> torch.Tensor:
    """Bytes of NaN, writable, with more of them in front. A byte that is written stays alone."""
    pieces = -(-(BEFORE + size) // PIECE)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *3 * [ctypes.c_int], ctypes.c_int64]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    access, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | MAP_NORESERVE

    def mapped(at: int | None, length: int, flags: int, file: int) -> int:
        found = libc.mmap(at, length, access, flags, file, 0)
        assert found not in (None, ctypes.c_void_p(-1).value), os.strerror(ctypes.get_errno())
        return int(found)

    start = mapped(None, pieces * PIECE, flags | mmap.MAP_ANONYMOUS, -1)
    for piece in range(pieces):
        mapped(start + piece * PIECE, PIECE, flags | MAP_FIXED, _poison())
    area = (ctypes.c_uint8 * size).from_address(start + BEFORE)
    weakref.finalize(area, libc.munmap, start, pieces * PIECE)
    return torch.frombuffer(area, dtype=torch.uint8)


@functools.cache
def _poison() -> int:
    """A file of bytes with all bits set, which are NaN in every format."""
    file = os.memfd_create("poison")
    os.write(file, b"\xff" * PIECE)
    return file


@dataclass(frozen=True)
class Far:
    """A case in a far cache. Request i has the pages at `edges[i]`, and one more has those of all.

    `edges`: boundaries in bytes from the first key: 2^31, 2^32, 2^33 and 2^32 elements.
    `call`: the arguments. `small`: the same call, with a cache of no more than its pages.
    """

    edges: tuple[int, ...]
    call: Call
    small: Call

    @classmethod
    def of(cls, case: Case, neighbours: int = NEIGHBOURS) -> Far:
        """The probe in the layout and formats of `case`, whose lengths do not matter.

        Args:
            neighbours: tokens on each side of each boundary of the request that has them all.
        """
        assert case.layout is not None
        element, size = (case.kv_dtype or case.dtype).itemsize, case.block_size
        edges = tuple(sorted({2**31, 2**32, 2**33, 2**32 * element}))
        each_side = max(neighbours // size, 1)
        pages = [*(2 for _ in edges), 2 * each_side * len(edges)]
        last = size // 4  # tokens that the last page lacks
        lengths = tuple((min(7, n * size - last), n * size - last) for n in pages)
        small = make(case.but(lengths=lengths))
        cache = _far_cache(case.layout, small["paged_kv"], edges[-1] // element)
        table = small["block_table"].clone()
        for request, near in enumerate([*((edge,) for edge in edges), edges[::-1]]):
            blocks = _around(cache, near, each_side if len(near) > 1 else 0)
            _move(small["paged_kv"], table[request, : len(blocks)].tolist(), cache, blocks)
            table[request, : len(blocks)] = torch.tensor(blocks, dtype=torch.int32)
        return cls(edges, {**small, "paged_kv": cache, "block_table": table}, small)

    def wrapped(self, bits: int) -> Call:
        """The call as if byte offsets of pages had `bits` bits: a wrong one, for controls."""
        cache: PagedKV = self.call["paged_kv"]
        blocks, rest = divmod(2**bits, cache.key.strides[0] * cache.dtype.itemsize)
        assert rest == 0
        table = self.call["block_table"]
        valid = (table >= 0) & (table < cache.num_blocks)
        return {**self.call, "block_table": torch.where(valid, table % blocks, table)}


def _far_cache(layout: str, small: PagedKV, elements: int) -> PagedKV:
    """A cache of poison, like `small` in all but its blocks, of more than `elements`.

    Its strides are those of two small caches, continued: a stride that depends on the number of
    blocks is proportional to it.
    """

    def built(blocks: int) -> PagedKV:
        outer = (blocks, small.num_kv_heads, small.block_size)
        keys = torch.empty(*outer, small.head_size, dtype=small.dtype)
        values = torch.empty(*outer, small.value_size, dtype=small.dtype)
        return LAYOUTS[layout].build(keys, values)

    few, more = built(2), built(3)
    least = spanned(more.key.tensor) - spanned(few.key.tensor)  # elements of a block, at least
    blocks = elements // least + BEYOND
    memory: dict[int, torch.Tensor] = {}

    def far(near: Sequence[int], further: Sequence[int]) -> list[int]:
        """Numbers of the far cache, by those of two and of three blocks."""
        return [n + (blocks - 2) * (f - n) for n, f in zip(near, further, strict=True)]

    def moved(view: CacheView, other: CacheView) -> CacheView:
        old, new = view.tensor, other.tensor
        storages = old.untyped_storage(), new.untyped_storage()
        size, offset = far(
            (storages[0].nbytes(), int(old.storage_offset())),
            (storages[1].nbytes(), int(new.storage_offset())),
        )
        where = storages[0].data_ptr()
        if where not in memory:
            memory[where] = poisoned(size).view(old.dtype)
        place = far(old.shape, new.shape), far(old.stride(), new.stride()), offset
        tensor = memory[where].as_strided(*place)
        return CacheView.from_ints(tensor, far(view.as_ints(), other.as_ints()))

    pairs = ((few.key, more.key), (few.value, more.value))
    key, value = (moved(*pair) for pair in pairs)
    return replace(few, key=key, value=value, num_blocks=blocks)


def spanned(tensor: torch.Tensor) -> int:
    """Elements from a tensor's first to its last."""
    return sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1


def _around(cache: PagedKV, edges: Sequence[int], each_side: int) -> list[int]:
    """Blocks on alternate sides of boundaries, which are counted in bytes.

    `each_side`: how many further ones, of which none is where another one's offset leads if it
    wraps. 0: the first block past each boundary and the one before it.
    """
    found = []
    for number in range(max(each_side, 1) * len(edges)):
        after = _first_past(cache, edges[number % len(edges)])
        near = number + 1 if each_side else 0
        found += [after - 1 - near, after + near]
    return found


def _first_past(cache: PagedKV, edge: int) -> int:
    """The first block that begins at a boundary or past it.

    Where blocks are not the outermost axis, it is the boundary's place within that one.
    """
    block = cache.key.strides[0]
    outer = [stride for stride in cache.key.tensor.stride() if stride > block]
    within = edge // cache.dtype.itemsize % min(outer, default=2**62)
    return min(max(math.ceil(within / block), BEYOND), cache.num_blocks - BEYOND)


def _move(small: PagedKV, sources: list[int], cache: PagedKV, blocks: list[int]) -> None:
    """Copies blocks of the small cache to their places in the far one."""
    for old, new in ((small.key, cache.key), (small.value, cache.value)):
        axis = new.tensor.shape.index(cache.num_blocks)
        for source, block in zip(sources, blocks, strict=True):
            new.tensor.select(axis, block).copy_(old.tensor.select(axis, source))
