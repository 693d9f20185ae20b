"""Calls whose tensors end, or begin, at a page that may not be touched. A program of its own:
`python -m tests.ops.guard_pages`; a read or write outside a tensor ends it with a signal."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import replace
from itertools import product

import torch

from hk_backend.devices import device_for
from hk_backend.ops import CacheView, PagedKV, attention_prefill, merge_attention
from tests.ops import layouts
from tests.ops.cases import Case, make
from tests.ops.oracle import check
from tests.ops.strategies import DTYPES

PAGE = mmap.PAGESIZE
PROT_NONE = 0
_maps: list[mmap.mmap] = []  # kept: tensors point into them

LAYOUTS = (
    "NHD, two tensors",
    "one [B,H,N,2D]",
    "ROCM_ATTN: [B,H,D/x,N,x] and [B,H,D,N]",
    "AITER shuffled: [B,H,D/x,N,x] and [B,H,N/x,D,x]",
    "CPU_ATTN: K [D,N], V [N,D], one storage",
    "CPU_ATTN for AMX: K [N/16,D/2,16,2], V [D/16,N/2,16,2], one storage",
    "pairs: [B,H,D/2,N,2] and [B,H,N/2,D,2]",
)


def guarded(tensor: torch.Tensor, side: str) -> torch.Tensor:
    """A copy with the same strides, with a forbidden page right after or right before it."""
    strides = tensor.stride()
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, strides, strict=True))
    size = span * tensor.itemsize if tensor.numel() else 0
    pages = -(-size // PAGE) + 1
    area = mmap.mmap(-1, pages * PAGE)
    _maps.append(area)
    start = PAGE if side == "before" else (pages - 1) * PAGE - size
    flat = torch.frombuffer(area, dtype=torch.uint8, count=pages * PAGE)[start : start + size]
    copy = flat.view(tensor.dtype).as_strided(tensor.shape, strides, start // tensor.itemsize)
    copy.copy_(tensor)
    forbidden = 0 if side == "before" else (pages - 1) * PAGE
    address = ctypes.addressof(ctypes.c_char.from_buffer(area)) + forbidden
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(address), PAGE, PROT_NONE) == 0, ctypes.get_errno()
    return copy


def guarded_cache(cache: PagedKV, side: str) -> PagedKV:
    """Both tensors alone: an access to the one that lands in the other would be caught too."""

    def move(view: CacheView) -> CacheView:
        return replace(view, tensor=guarded(view.tensor, side))

    return replace(cache, key=move(cache.key), value=move(cache.value))


def run(case: Case, side: str) -> None:
    call = make(case)
    if case.layout is not None:  # full blocks at both ends of the cache, next to the pages
        call["block_table"][0, 0] = 0
        call["block_table"][1, 4] = call["paged_kv"].num_blocks - 1
    for name, argument in call.items():
        if isinstance(argument, torch.Tensor):
            call[name] = guarded(argument, side)
        elif isinstance(argument, PagedKV):
            call[name] = guarded_cache(argument, side)
        else:
            call[name] = argument
    out = guarded(torch.zeros(call["query"].shape, dtype=call["query"].dtype), side)
    attention_prefill(**call, out=out, return_lse=True)


def merge(side: str, dtype: torch.dtype, head_size: int) -> None:
    outputs = [guarded(torch.randn(7, 3, head_size).to(dtype), side) for _ in range(3)]
    totals = [guarded(torch.randn(3, 7), side) for _ in range(2)]
    merge_attention(outputs[0], totals[0], outputs[1], totals[1], out=outputs[2])


def main() -> None:
    check(make(Case()))  # nothing is proved by a kernel that computes nothing
    full = {"sinks": True, "alibi": True, "k_scale": "per head", "v_scale": "per head"}
    for side in ("after", "before"):
        for dtype in (*DTYPES, torch.float8_e4m3fn):
            for head_size in (8, 24, 64, 72, 128, 256):
                case = Case(lengths=((3, 17), (1, 5)), num_heads=2, head_size=head_size)
                query_dtype = torch.bfloat16 if dtype.itemsize == 1 else dtype
                case = case.but(dtype=query_dtype, kv_dtype=dtype, **full)
                run(case, side)
                for layout, size in product(LAYOUTS, (16, 24)):
                    if layouts.LAYOUTS[layout].fits(size, head_size, dtype):
                        lengths = ((5, size), (16, 5 * size))
                        run(case.but(lengths=lengths, layout=layout, block_size=size), side)
                if dtype in DTYPES:
                    merge(side, dtype, head_size)
    print(len(_maps), "guarded tensors on", device_for("cpu").name)


if __name__ == "__main__":
    main()
