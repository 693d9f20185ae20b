"""Calls whose tensors end, or begin, at a page that may not be touched. This is a program of its
own: `python -m tests.ops.guard_pages attention`, or `linear_layers`. An access outside of a tensor
ends it with a signal."""

from __future__ import annotations

import ctypes
import mmap
import sys
from dataclasses import replace
from itertools import product

import torch

from hk_backend.devices import device_for
from hk_backend.ops import (
    CacheView,
    PagedKV,
    attention_prefill,
    linear,
    look_up,
    merge_attention,
    quantize_fp8,
    quantize_mx,
)
from hk_backend.terms.linear_arguments import LinearArguments, LookUpArguments
from hk_backend.terms.packed_weight import PackedWeight
from hk_backend.terms.weight_format import FLOAT_DTYPES, FORMATS
from tests.ops import layouts
from tests.ops.cases import Case, make
from tests.ops.linear_cases import KINDS, Layer
from tests.ops.linear_cases import Case as Linear
from tests.ops.linear_cases import make as make_layer
from tests.ops.linear_oracle import check as check_layer
from tests.ops.oracle import check
from tests.ops.strategies import DTYPES
from tests.ops.test_look_up import CASES as ROWS

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
    """A cache whose two tensors are guarded alone: an access to one that lands in the other is
    caught."""

    def move(view: CacheView) -> CacheView:
        return replace(view, tensor=guarded(view.tensor, side))

    return replace(cache, key=move(cache.key), value=move(cache.value))


def attend(case: Case, side: str) -> None:
    call = make(case)
    if case.layout is not None:  # full blocks at both ends of the cache, next to the pages
        call["block_table"][0, 0] = 0
        call["block_table"][1, 4] = call["paged_kv"].num_blocks - 1
    for name, argument in call.items():
        if isinstance(argument, torch.Tensor):
            call[name] = guarded(argument, side)
        elif isinstance(argument, PagedKV):
            call[name] = guarded_cache(argument, side)
    out = guarded(torch.zeros(call["query"].shape, dtype=call["query"].dtype), side)
    attention_prefill(**call, out=out, return_lse=True)


def merge(side: str, dtype: torch.dtype, head_size: int) -> None:
    outputs = [guarded(torch.randn(7, 3, head_size).to(dtype), side) for _ in range(3)]
    totals = [guarded(torch.randn(3, 7), side) for _ in range(2)]
    merge_attention(outputs[0], totals[0], outputs[1], totals[1], out=outputs[2])


def attention() -> None:
    check(make(Case()))  # nothing is proved by a kernel that computes nothing
    full = {"sinks": True, "alibi": True, "k_scale": "per head", "v_scale": "per head"}
    for side in ("after", "before"):
        for dtype in (*DTYPES, torch.float8_e4m3fn):
            for head_size in (8, 72, 128):
                case = Case(lengths=((3, 17), (1, 5)), num_heads=2, head_size=head_size)
                query_dtype = torch.bfloat16 if dtype.itemsize == 1 else dtype
                case = case.but(dtype=query_dtype, kv_dtype=dtype, **full)
                attend(case, side)
                for layout, size in product(LAYOUTS, (16, 24)):
                    if layouts.LAYOUTS[layout].fits(size, head_size, dtype):
                        lengths = ((5, size), (16, 5 * size))
                        attend(case.but(lengths=lengths, layout=layout, block_size=size), side)
                if dtype in DTYPES:
                    merge(side, dtype, head_size)


SIZES = {
    "after": ((1, 1, 1), (3, 17, 5), (18, 33, 9), (5, 40, 8), (20, 16, 4)),
    "before": ((2, 20, 3), (19, 16, 4)),
}
"""Sizes (M, N, multiples of the format's unit of K) by the side of the forbidden page."""
CODES = (("token", "channel"), ("tensor", "channel"), ("token_block", "block"))
"""Activations and weight scales."""


def guarded_weight(packed: PackedWeight, side: str) -> PackedWeight:
    parts = {name: guarded(tensor, side) for name, tensor in packed.tensors().items()}
    return PackedWeight.from_parts(parts, packed.as_ints())


def run(layer: Layer, side: str) -> None:
    """Pack guarded tensors, and multiply guarded tensors into a guarded output."""
    layer.weight = guarded(layer.weight, side)
    if layer.scales is not None:
        layer.scales = guarded(layer.scales, side)
    weight = guarded_weight(layer.pack(), side)
    x = guarded(layer.x, side)
    out = guarded(torch.zeros(len(x), weight.n, dtype=layer.out_dtype or x.dtype), side)
    bias = None if layer.bias is None else guarded(layer.bias, side)
    device_for("cpu").run(LinearArguments(x, weight, bias, out))
    assert torch.equal(out.nan_to_num(), layer.run().nan_to_num())


def run_codes(layer: Layer, side: str) -> None:
    """Multiply rows that are FP8 codes already."""
    weight = layer.pack()
    codes, scales = quantize_fp8(layer.x, layer.activations)
    inside = linear(codes, weight, None, torch.float32, scales)
    out = linear(guarded(codes, side), weight, None, torch.float32, guarded(scales, side))
    assert torch.equal(out, inside)


def rows(layer: Layer, side: str) -> None:
    """Look up the first and the last row of a packed weight."""
    packed = layer.pack()
    weight = guarded_weight(packed, side)
    ids = guarded(torch.tensor([0, weight.n - 1]), side)
    for dtype in FLOAT_DTYPES:
        out = guarded(torch.zeros(2, weight.k, dtype=dtype), side)
        device_for("cpu").run(LookUpArguments(ids, weight, out))
        assert torch.equal(out.nan_to_num(), look_up(ids, packed, dtype).nan_to_num())


def quantise(dtype: torch.dtype, k: int, side: str) -> None:
    x = guarded(torch.randn(3, k).to(dtype), side)
    for granularity in ("token", "tensor", "token_block", "block"):
        quantize_fp8(x, granularity)
    if k % 32 == 0:
        for name, format in FORMATS.items():
            if format.is_mx:
                quantize_mx(x, name)
                quantize_mx(x, name, rotation=32)


def linear_layers() -> None:
    check_layer(Linear())  # nothing is proved by a kernel that computes nothing
    for side in ("after", "before"):
        for format, activations, scales in KINDS:
            facts = FORMATS[format]
            for m, n, blocks in SIZES[side]:
                k = blocks * facts.k_multiple
                case = Linear(format, activations, scales, m, n, k, bias=torch.bfloat16)
                run(make_layer(case.but(x_dtype=FLOAT_DTYPES[m % 3], out_dtype=None)), side)
            run(
                make_layer(Linear(format, activations, scales, m=3, weight_layout="transposed")),
                side,
            )
        for rotation in (64, 128):
            for m in (3, 20):
                rotated = Linear("mxfp4", "mx_rotated", m=m, n=17, k=384, rotation=rotation)
                run(make_layer(rotated.but(out_dtype=None)), side)
        fp8 = Linear("fp8_e4m3fn", "tensor", "channel", m=3, n=17, k=136)
        run(make_layer(fp8.but(static=True, out_dtype=None)), side)
        for activations, scales in CODES:
            run_codes(make_layer(fp8.but(activations=activations, scale_kind=scales)), side)
        for looked_up in ROWS:
            rows(make_layer(looked_up), side)
        for dtype in FLOAT_DTYPES:
            for k in (1, 7, 32, 96, 130):
                quantise(dtype, k, side)


if __name__ == "__main__":
    {"attention": attention, "linear_layers": linear_layers}[sys.argv[1]]()
    print(len(_maps), "guarded tensors on", device_for("cpu").name)
