"""Paged keys and values: every layout, block size and dtype, shared blocks, huge caches."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hk_backend.ops import PagedKV, attention_prefill
from tests.ops.cases import Call, Case, int32, make
from tests.ops.far_pages import Far
from tests.ops.layouts import LAYOUTS
from tests.ops.oracle import check
from tests.ops.strategies import DTYPES, FP8_DTYPES, SCALE_KINDS

RAGGED = ((1, 40), (0, 6), (35, 35), (20, 150), (3, 128), (0, 0), (2, 17))
HEAD_SIZES = (64, 16, 80, 128, 96, 256)
FORMS = [
    (layout, block_size, HEAD_SIZES[(i + j + k) % len(HEAD_SIZES)], dtype)
    for i, layout in enumerate(LAYOUTS)
    for j, block_size in enumerate((1, 5, 16, 32, 48, 128))
    for k, dtype in enumerate((*DTYPES, *FP8_DTYPES))
    if LAYOUTS[layout].fits(block_size, 64, dtype)
]


@pytest.mark.parametrize(("layout", "block_size", "head_size", "kv_dtype"), FORMS)
def test_every_layout(
    layout: str, block_size: int, head_size: int, kv_dtype: torch.dtype, isa: str
) -> None:
    dtype = kv_dtype if kv_dtype in DTYPES else torch.bfloat16
    case = Case(RAGGED, 6, 3, head_size, dtype, kv_dtype, layout, block_size, after=2)
    check(make(case))


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


@pytest.mark.parametrize("k_scale", SCALE_KINDS)
@pytest.mark.parametrize("v_scale", SCALE_KINDS)
def test_fp8_scales(k_scale: str, v_scale: str) -> None:
    case = Case(RAGGED[2:], 6, 3, dtype=torch.bfloat16, k_scale=k_scale, v_scale=v_scale)
    packed, paged = (case.but(kv_dtype=kv_dtype) for kv_dtype in FP8_DTYPES)
    check(make(packed))
    check(make(paged.but(layout="one [B,H,N,2D]", sinks=True, logits_soft_cap=20.0)))


def fill(call: Call, keys: torch.Tensor, values: torch.Tensor) -> None:
    """Overwrite the cache of a one-request call with blocks of one token."""
    cache: PagedKV = call["paged_kv"]
    for view, packed in ((cache.key, keys), (cache.value, values)):
        for block, row in zip(call["block_table"][0].tolist(), packed, strict=False):
            view.tensor[block].copy_(row.reshape(view.tensor[block].shape))


def shared(table: torch.Tensor) -> torch.Tensor:
    """Prefix caching: the same blocks in the tables of several requests."""
    table[1, :2], table[3] = table[0, :2], table[0]
    return table


def within(table: torch.Tensor, start: int, step: int) -> torch.Tensor:
    """The table at every `step`-th place of wider rows."""
    junk = torch.full((len(table), 2 * table.shape[1] + 1), -1, dtype=torch.int32)
    return junk[:, start::step][:, : table.shape[1]].copy_(table)


TABLES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "shared": shared,
    "repeated": lambda table: torch.cat([table[:1, :1].expand(1, table.shape[1]), table[1:]]),
    "expanded": lambda table: table[:1].expand(4, -1),
    "transposed": lambda table: table.T.contiguous().T,
    "in every other column": lambda table: within(table, 0, 2),
    "behind a column": lambda table: within(table, 1, 1),
}


@pytest.mark.parametrize("layout", ["NHD, two tensors", "one [B,H,N,2D]"])
@pytest.mark.parametrize("change", TABLES)
def test_block_tables(change: str, layout: str) -> None:
    call = make(Case(lengths=((5, 37), (5, 37), (0, 30), (37, 37)), layout=layout, num_heads=4))
    call["block_table"][2] = -7  # padding has no query: nothing is read
    check(call | {"block_table": TABLES[change](call["block_table"])})


HUGE = 2**31 + 2**27
"""More elements than int32 counts. Few blocks are touched, so only those are resident."""


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


FAR_DTYPES = (torch.bfloat16, *FP8_DTYPES, torch.float16)
FAR_FORMS = [
    (layout, dtype, size)
    for i, layout in enumerate(LAYOUTS)
    for j, dtype in enumerate(FAR_DTYPES)
    for size in ((16, 1, 48, 64, 5)[(i + j) % 5],)
    if LAYOUTS[layout].fits(size, 64, dtype)
]


def far(layout: str, kv_dtype: torch.dtype, block_size: int) -> Far:
    """Pages at 2^31, 2^32 and 2^33 bytes and at 2^32 elements. All other bytes are NaN."""
    dtype = kv_dtype if kv_dtype in DTYPES else torch.bfloat16
    case = Case(num_heads=4, num_kv_heads=2, dtype=dtype, kv_dtype=kv_dtype, layout=layout)
    return Far.of(case.but(block_size=block_size), neighbours=16)


@pytest.mark.parametrize(("layout", "kv_dtype", "block_size"), FAR_FORMS)
def test_two_pages_on_either_side_of_a_boundary(
    layout: str, kv_dtype: torch.dtype, block_size: int, isa: str
) -> None:
    check(far(layout, kv_dtype, block_size).call)


REFUSED = {
    "CPU_ATTN: K [D,N], V [N,D], one storage": "paged_kv: keys with",
    "CPU_ATTN for AMX: K [N/16,D/2,16,2], V [D/16,N/2,16,2], one storage": "paged_kv: keys with",
    "pairs: [B,H,D/2,N,2] and [B,H,N/2,D,2]": "paged_kv: keys with",
    "token innermost: [H,D,B,N]": "paged_kv: keys with",
    "padded rows": r"key_\w+: a stride of \d+ elements",
}
"""Layouts that no GPU kernel reads, by the beginning of the reason."""


@pytest.mark.parametrize(
    ("layout", "kv_dtype"), list(zip(LAYOUTS, itertools.cycle(FAR_DTYPES[:2]), strict=False))
)
def test_two_pages_on_gfx950(layout: str, kv_dtype: torch.dtype, on_gfx950: None) -> None:
    """Each layout is read, or refused before the launch. The kernels are proved in
    tests/kernels/test_attention_far_pages.py; here the operator makes their arguments."""
    call = far(layout, kv_dtype, 16).call
    if layout not in REFUSED:
        check(call, weights_dtype=torch.bfloat16)
        return
    with pytest.raises(ValueError, match=REFUSED[layout]):
        attention_prefill(**call)


@pytest.mark.parametrize("bits", [31, 32, 33])
def test_an_offset_that_wraps_is_seen(bits: int) -> None:
    """A control: requests whose pages are taken from where wrapped offsets lead are NaN."""
    probe = far("HND, two tensors", torch.bfloat16, 16)
    out = attention_prefill(**probe.wrapped(bits))
    starts = probe.call["query_start_loc"].tolist()
    wrong = [bool(out[slice(*rows)].isnan().any()) for rows in itertools.pairwise(starts)]
    assert wrong == [edge >= 2**bits for edge in (*probe.edges, probe.edges[-1])]


def test_packed_tensors_of_more_than_2_31_elements(isa: str) -> None:
    tokens = 65
    case = Case(lengths=((tokens, tokens),), dtype=torch.bfloat16, kv_dtype=torch.float8_e4m3fn)
    call = make(case)

    def wide(like: torch.Tensor) -> torch.Tensor:
        storage = torch.empty(HUGE + 128, dtype=like.dtype)
        return storage.as_strided(like.shape, (HUGE // (tokens - 1), 64, 1)).copy_(like)

    check(call | {name: wide(call[name]) for name in ("key", "value")})
    check(call | {"query": wide(call["query"])}, out=wide(call["query"]))


def peak_resident(start_over: bool = False) -> int:
    """Peak memory in bytes; `start_over`: counted from now on."""
    if start_over:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
