"""Paged keys and values: every layout, block size and dtype, shared blocks, huge caches."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hk_backend.ops import PagedKV
from tests.ops.cases import Call, Case, int32, make
from tests.ops.layouts import LAYOUTS
from tests.ops.oracle import check
from tests.ops.strategies import DTYPES, FP8_DTYPES, SCALE_KINDS

RAGGED = ((1, 40), (0, 6), (35, 35), (20, 150), (3, 128), (0, 0), (2, 17))
FORMS = [
    pytest.param(layout, block_size, dtype, id=f"{layout}, {block_size}, {str(dtype)[6:]}")
    for layout in LAYOUTS
    for block_size in (1, 5, 16, 32, 48, 128)
    for dtype in (*DTYPES, *FP8_DTYPES)
    if LAYOUTS[layout].fits(block_size, 64, dtype)
]


@pytest.mark.parametrize(("layout", "block_size", "kv_dtype"), FORMS)
def test_every_layout(layout: str, block_size: int, kv_dtype: torch.dtype) -> None:
    dtype = kv_dtype if kv_dtype in DTYPES else torch.bfloat16
    case = Case(lengths=RAGGED, num_heads=6, num_kv_heads=3, dtype=dtype, kv_dtype=kv_dtype)
    check(make(case.but(layout=layout, block_size=block_size, after=2)))


@pytest.mark.parametrize("head_size", [16, 80, 96, 128, 256])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_on_every_instruction_set(layout: str, head_size: int, isa: str) -> None:
    case = Case(lengths=RAGGED, num_heads=2, num_kv_heads=2, head_size=head_size, layout=layout)
    check(make(case.but(dtype=torch.bfloat16)))
    check(make(case.but(dtype=torch.float32, block_size=32)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k_scale", SCALE_KINDS)
@pytest.mark.parametrize("v_scale", SCALE_KINDS)
@pytest.mark.parametrize("kv_dtype", FP8_DTYPES)
def test_fp8_scales(kv_dtype: torch.dtype, k_scale: str, v_scale: str, dtype: torch.dtype) -> None:
    case = Case(lengths=RAGGED, num_heads=6, num_kv_heads=3, dtype=dtype, kv_dtype=kv_dtype)
    case = case.but(k_scale=k_scale, v_scale=v_scale)
    check(make(case))
    check(make(case.but(layout="one [B,H,N,2D]", sinks=True, logits_soft_cap=20.0)))


@pytest.mark.parametrize("dtype", FP8_DTYPES)
@pytest.mark.parametrize("layout", ["NHD, two tensors", "CPU_ATTN: K [D,N], V [N,D], one storage"])
def test_every_finite_fp8_code(dtype: torch.dtype, layout: str, isa: str) -> None:
    """One key and value per finite code, denormals and both zeros included."""
    codes = torch.arange(256, dtype=torch.uint8).view(dtype)
    codes = codes[codes.float().isfinite()]
    case = Case(lengths=((len(codes),) * 2,), num_heads=1, head_size=16, kv_dtype=dtype)
    case = case.but(magnitude=0.01, causal=False)
    call = make(case)
    call["key"] = codes[:, None, None].expand(-1, 1, 16)
    call["value"] = call["key"].roll(7, 0)
    check(call)
    paged = make(case.but(layout=layout, block_size=1))
    fill(paged, call["key"], call["value"])
    check(paged | {"query": call["query"]})


def fill(call: Call, keys: torch.Tensor, values: torch.Tensor) -> None:
    """Overwrite the cache of a one-request call with blocks of one token."""
    cache: PagedKV = call["paged_kv"]
    for view, packed in ((cache.key, keys), (cache.value, values)):
        for block, row in zip(call["block_table"][0].tolist(), packed, strict=False):
            view.tensor[block].copy_(row.reshape(view.tensor[block].shape))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_requests_that_share_blocks(layout: str) -> None:
    """Prefix caching: the same blocks in the tables of several requests."""
    call = make(Case(lengths=((5, 37), (5, 37), (37, 37)), layout=layout, num_heads=4))
    shared = call["block_table"][0, :2].clone()
    call["block_table"][1:, :2] = shared
    check(call)
    call["block_table"][2] = call["block_table"][0]
    check(call)


def test_one_block_repeated_in_a_table() -> None:
    call = make(Case(lengths=((10, 64),), layout="NHD, two tensors"))
    call["block_table"][0, :4] = call["block_table"][0, 0].item()
    check(call)


def test_an_empty_request_reads_nothing() -> None:
    """Padding rows of an engine: whatever their length and table say, nothing is read."""
    call = make(Case(lengths=((3, 20), (0, 30), (0, 1), (4, 4)), layout="NHD, two tensors"))
    call["block_table"][1:3] = -7
    check(call)


@pytest.mark.parametrize("form", ["transposed", "every other column", "wider", "expanded"])
def test_block_table_of_any_strides(form: str) -> None:
    call = make(Case(lengths=((9, 60), (5, 33), (20, 20)), layout="one [B,H,N,2D]"))
    table = call["block_table"]
    junk = torch.full((table.shape[0], 2 * table.shape[1]), -1, dtype=torch.int32)
    if form == "transposed":
        call["block_table"] = table.T.contiguous().T
    elif form == "every other column":
        junk[:, ::2] = table
        call["block_table"] = junk[:, ::2]
    elif form == "wider":
        junk[:, 1 : 1 + table.shape[1]] = table
        call["block_table"] = junk[:, 1 : 1 + table.shape[1]]
    else:
        call = make(Case(lengths=((9, 60), (5, 60)), layout="one [B,H,N,2D]"))
        call["block_table"] = call["block_table"][:1].expand(2, -1)
    check(call)


HUGE = 2**31 + 2**27
"""Elements: past what int32 counts. Only a few blocks are touched, so only those are resident."""


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16])
@pytest.mark.parametrize("axis", ["block", "head", "token", "channel"])
def test_caches_of_more_than_2_31_elements(axis: str, dtype: torch.dtype, isa: str) -> None:
    """The last element of each axis lies past 2^31 elements. 2 to 5 GB virtual, not resident."""
    blocks, heads, tokens, channels = 3, 2, 16, 64
    resident = peak_resident(start_over=True)
    sizes = {"block": blocks, "head": heads, "token": tokens, "channel": channels}
    strides = {"token": channels, "head": tokens * channels, "block": heads * tokens * channels}
    strides["channel"] = 1
    strides[axis] = HUGE // (sizes[axis] - 1)
    order = [strides[name] for name in ("block", "head", "token", "channel")]
    shape = (blocks, heads, tokens, channels)
    half = sum((n - 1) * s for n, s in zip(shape, order, strict=True)) + 1
    caches = []
    for _ in range(2):
        storage = torch.empty(half * dtype.itemsize, dtype=torch.uint8).view(dtype)
        cache = storage.as_strided(shape, order)
        cache.copy_(torch.randn(shape).to(dtype))
        caches.append(cache)
    paged = PagedKV.from_views(caches[0], "B H N D", caches[1], "B H N D")
    case = Case(lengths=((7, 40), (16, 16)), num_heads=4, num_kv_heads=2)
    call = make(case.but(dtype=torch.bfloat16))
    for name in ("key", "value", "key_start_loc"):
        del call[name]
    table = int32([2, 0, 1, 2, -1, -1]).view(2, 3)
    check(call | {"paged_kv": paged, "block_table": table, "seq_lens": int32([40, 16])})
    assert peak_resident() - resident < 2**29


def test_packed_keys_of_more_than_2_31_elements(isa: str) -> None:
    keys = 65
    call = make(Case(lengths=((keys, keys),), dtype=torch.bfloat16, kv_dtype=torch.float8_e4m3fn))
    stride = HUGE // (keys - 1)
    for name in ("key", "value"):
        storage = torch.empty(HUGE + 64, dtype=torch.uint8).view(torch.float8_e4m3fn)
        wide = storage.as_strided((keys, 1, 64), (stride, 64, 1))
        call[name] = wide.copy_(call[name])
    check(call)


def test_queries_and_output_of_more_than_2_31_elements(isa: str) -> None:
    tokens = 65
    call = make(Case(lengths=((tokens, tokens),), dtype=torch.bfloat16))
    stride = HUGE // (tokens - 1)
    wide = [
        torch.empty(HUGE + 128, dtype=torch.bfloat16).as_strided((tokens, 2, 64), (stride, 64, 1))
        for _ in range(2)
    ]
    call["query"] = wide[0].copy_(call["query"])
    check(call, out=wide[1])


def peak_resident(start_over: bool = False) -> int:
    """Bytes; `start_over`: from what is resident now, not from an earlier test's peak."""
    if start_over:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
