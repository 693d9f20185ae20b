"""Bad arguments: an error that names the argument, its value and what is valid; nothing written."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from hk_backend.ops import PagedKV, attention_prefill, merge_attention
from tests.ops.cases import Call, Case, int32, make, nan

PACKED = Case(lengths=((5, 9), (7, 7)), num_heads=4, num_kv_heads=2, head_size=16)
PAGED = PACKED.but(layout="NHD, two tensors", block_size=4)
META = torch.device("meta")


def paged_of(**changes: int) -> PagedKV:
    return replace(make(PAGED)["paged_kv"], **changes)


def query(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


# (what is wrong, the call it is wrong in, the changes, the argument and the value in the message)
BAD: list[tuple[str, Case, Call, str, str]] = [
    ("query: 2 axes", PACKED, {"query": query(12, 64)}, "query", "(12, 64)"),
    ("query: 0 axes", PACKED, {"query": torch.tensor(1.0)}, "query", "()"),
    ("query: 1 axis", PACKED, {"query": query(12)}, "query", "(12,)"),
    ("query: 4 axes", PACKED, {"query": query(1, 12, 4, 16)}, "query", "(1, 12, 4, 16)"),
    ("query: float64", PACKED, {"query": query(12, 4, 16).double()}, "query", "torch.float64"),
    ("query: int32", PACKED, {"query": query(12, 4, 16).int()}, "query", "torch.int32"),
    ("query: head size 12", PACKED, {"query": query(12, 4, 12)}, "query", "12"),
    ("query: head size 264", PACKED, {"query": query(12, 4, 264)}, "query", "264"),
    ("query: head size 0", PACKED, {"query": query(12, 4, 0)}, "query", "head_size 0"),
    ("query: 3 heads", PACKED, {"query": query(12, 3, 16)}, "query", "3 heads"),
    ("query: 0 heads", PACKED, {"query": query(12, 0, 16)}, "query", "0 heads"),
    ("query: grad", PACKED, {"query": query(12, 4, 16).requires_grad_()}, "query", "grad"),
    ("key: None", PACKED, {"key": None}, "key", "None"),
    ("value: None", PACKED, {"value": None}, "value", "None"),
    ("key: 2 axes", PACKED, {"key": query(16, 32)}, "key", "(16, 32)"),
    ("key: head size", PACKED, {"key": query(16, 2, 24)}, "key", "(16, 2, 24)"),
    ("key: dtype", PACKED, {"key": query(16, 2, 16).half()}, "key", "torch.float16"),
    ("key: meta", PACKED, {"key": query(16, 2, 16).to(META)}, "key", "meta"),
    (
        "key: no heads",
        PACKED,
        {"key": query(16, 0, 16), "value": query(16, 0, 16)},
        "key",
        "0 heads",
    ),
    ("key: grad", PACKED, {"key": query(16, 2, 16).requires_grad_()}, "key", "grad"),
    ("value: grad", PACKED, {"value": query(16, 2, 16).requires_grad_()}, "value", "grad"),
    ("value: rows", PACKED, {"value": query(15, 2, 16)}, "value", "(15, 2, 16)"),
    ("value: heads", PACKED, {"value": query(16, 4, 16)}, "value", "(16, 4, 16)"),
    ("value: channels", PACKED, {"value": query(16, 2, 12)}, "value", "12 channels"),
    ("value: too many", PACKED, {"value": query(16, 2, 264)}, "value", "264 channels"),
    ("value: dtype", PACKED, {"value": query(16, 2, 16).bfloat16()}, "value", "torch.bfloat16"),
    (
        "starts: int64",
        PACKED,
        {"query_start_loc": int32([0, 5, 12]).long()},
        "query_start_loc",
        "torch.int64",
    ),
    (
        "starts: 2 axes",
        PACKED,
        {"query_start_loc": int32([[0, 5, 12]])},
        "query_start_loc",
        "(1, 3)",
    ),
    ("starts: none", PACKED, {"query_start_loc": int32([])}, "query_start_loc", "(0,)"),
    (
        "starts: meta",
        PACKED,
        {"query_start_loc": int32([0, 5, 12]).to(META)},
        "query_start_loc",
        "meta",
    ),
    ("key starts: one less", PACKED, {"key_start_loc": int32([0, 9])}, "key_start_loc", "(2,)"),
    (
        "key starts: int64",
        PACKED,
        {"key_start_loc": int32([0, 9, 16]).long()},
        "key_start_loc",
        "torch.int64",
    ),
    ("seq_lens, packed", PACKED, {"seq_lens": int32([9, 7])}, "seq_lens", "a tensor"),
    ("table, packed", PACKED, {"block_table": int32([[0], [1]])}, "block_table", "a tensor"),
    ("key, paged", PAGED, {"key": query(16, 2, 16)}, "key", "a tensor"),
    ("value, paged", PAGED, {"value": query(16, 2, 16)}, "value", "a tensor"),
    ("key starts, paged", PAGED, {"key_start_loc": int32([0, 9, 16])}, "key_start_loc", "a tensor"),
    ("no table", PAGED, {"block_table": None}, "block_table", "None"),
    ("no seq_lens", PAGED, {"seq_lens": None}, "seq_lens", "None"),
    ("table: 1 axis", PAGED, {"block_table": int32([0, 1])}, "block_table", "(2,)"),
    ("table: rows", PAGED, {"block_table": int32([[0, 1, 2]] * 3)}, "block_table", "(3, 3)"),
    (
        "table: int64",
        PAGED,
        {"block_table": int32([[0, 1, 2]] * 2).long()},
        "block_table",
        "torch.int64",
    ),
    ("seq_lens: 3", PAGED, {"seq_lens": int32([9, 7, 1])}, "seq_lens", "(3,)"),
    ("seq_lens: int64", PAGED, {"seq_lens": int32([9, 7]).long()}, "seq_lens", "torch.int64"),
    ("cache: head size", PAGED, {"query": query(12, 4, 24)}, "paged_kv", "16"),
    ("cache: heads", PAGED, {"query": query(12, 3, 16)}, "query", "3 heads"),
    ("cache: dtype", PAGED, {"query": query(12, 4, 16).half()}, "paged_kv", "torch.float32"),
    ("cache: block size 0", PAGED, {"paged_kv": paged_of(block_size=0)}, "paged_kv", "0"),
    ("window 0", PACKED, {"sliding_window": 0}, "sliding_window", "0"),
    ("window -1", PACKED, {"sliding_window": -1}, "sliding_window", "-1"),
    ("cap -1", PACKED, {"logits_soft_cap": -1.0}, "logits_soft_cap", "-1.0"),
    ("cap nan", PACKED, {"logits_soft_cap": float("nan")}, "logits_soft_cap", "nan"),
    ("cap inf", PACKED, {"logits_soft_cap": float("inf")}, "logits_soft_cap", "inf"),
    ("scale nan", PACKED, {"scale": float("nan")}, "scale", "nan"),
    ("scale inf", PACKED, {"scale": float("inf")}, "scale", "inf"),
    ("k_scale nan", PACKED, {"k_scale": float("nan")}, "k_scale", "nan"),
    ("v_scale inf", PACKED, {"v_scale": float("inf")}, "v_scale", "inf"),
    ("sinks: 2 of 4", PACKED, {"sinks": torch.zeros(2)}, "sinks", "(2,)"),
    ("sinks: dtype", PACKED, {"sinks": torch.zeros(4).half()}, "sinks", "torch.float16"),
    ("slopes: 2 axes", PACKED, {"alibi_slopes": torch.zeros(4, 1)}, "alibi_slopes", "(4, 1)"),
    (
        "slopes: dtype",
        PACKED,
        {"alibi_slopes": torch.zeros(4).double()},
        "alibi_slopes",
        "torch.float64",
    ),
    ("slopes: meta", PACKED, {"alibi_slopes": torch.zeros(4, device=META)}, "alibi_slopes", "meta"),
    ("k_scale: 4 of 2", PACKED, {"k_scale": torch.ones(4)}, "k_scale", "(4,)"),
    ("k_scale: 0 axes", PACKED, {"k_scale": torch.tensor(1.0)}, "k_scale", "()"),
    ("v_scale: dtype", PACKED, {"v_scale": torch.ones(2).bfloat16()}, "v_scale", "torch.bfloat16"),
]


@pytest.mark.parametrize(
    ("case", "changes", "name", "value"), [b[1:] for b in BAD], ids=[b[0] for b in BAD]
)
def test_bad_argument(case: Case, changes: Call, name: str, value: str) -> None:
    assert_refused(make(case) | changes, name, value)


def assert_refused(call: Call, name: str, value: str) -> None:
    """A ValueError "name: value ... expected ...", and the output as it was: NaN."""
    shape = call["query"].shape
    out = nan(*shape, dtype=torch.float32).to(call["query"].dtype)
    before = out.clone()
    with pytest.raises(ValueError) as raised:
        attention_prefill(**call, out=out, return_lse=True)
    assert_names(str(raised.value), name, value)
    assert torch.equal(out.flatten().view(torch.uint8), before.flatten().view(torch.uint8))


def assert_names(message: str, name: str, value: str) -> None:
    assert re.match(rf"{re.escape(name)}(\[\d+\])*: ", message), message
    assert value in message.partition("expected")[0], message
    assert "expected" in message


BAD_OUT: dict[str, tuple[Callable[[], torch.Tensor], str]] = {
    "shape": (lambda: torch.zeros(12, 4, 8), "(12, 4, 8)"),
    "too few rows": (lambda: torch.zeros(11, 4, 16), "(11, 4, 16)"),
    "flat": (lambda: torch.zeros(12, 64), "(12, 64)"),
    "dtype": (lambda: torch.zeros(12, 4, 16).half(), "torch.float16"),
    "device": (lambda: torch.zeros(12, 4, 16, device=META), "meta"),
    "expanded": (lambda: torch.zeros(1, 4, 16).expand(12, -1, -1), "(0, 16, 1)"),
    "overlapping": (lambda: torch.zeros(800).as_strided((12, 4, 16), (40, 8, 1)), "(40, 8, 1)"),
    "grad": (lambda: torch.zeros(12, 4, 16).requires_grad_(), "grad"),
}


@pytest.mark.parametrize(("build", "value"), BAD_OUT.values(), ids=BAD_OUT)
def test_bad_output(build: Callable[[], torch.Tensor], value: str) -> None:
    out = build()
    with pytest.raises(ValueError) as raised:
        attention_prefill(**make(PACKED), out=out)
    assert_names(str(raised.value), "out", value)
    assert out.is_meta or (out == 0).all()


TWO_BLOCKS = PAGED.but(lengths=((5, 9), (0, 0), (3, 7)))

# (what is wrong, the call, the changes, the argument and the value): read on the CPU only
BAD_VALUES: list[tuple[str, Case, Call, str, str]] = [
    ("starts fall", PACKED, {"query_start_loc": int32([0, 8, 5])}, "query_start_loc", "5"),
    (
        "starts fall to the end",
        PACKED,
        {"query_start_loc": int32([0, 13, 12])},
        "query_start_loc",
        "12",
    ),
    ("starts negative", PACKED, {"query_start_loc": int32([-1, 5, 12])}, "query_start_loc", "-1"),
    (
        "starts past the tokens",
        PACKED,
        {"query_start_loc": int32([0, 5, 13])},
        "query_start_loc",
        "13",
    ),
    (
        "starts huge",
        PACKED,
        {"query_start_loc": int32([0, 5, 2**31 - 1])},
        "query_start_loc",
        str(2**31 - 1),
    ),
    ("key starts fall", PACKED, {"key_start_loc": int32([0, 17, 16])}, "key_start_loc", "16"),
    ("key starts negative", PACKED, {"key_start_loc": int32([-2, 9, 16])}, "key_start_loc", "-2"),
    (
        "key starts past the keys",
        PACKED,
        {"key_start_loc": int32([0, 9, 17])},
        "key_start_loc",
        "17",
    ),
    (
        "fewer keys than queries, by default",
        PACKED,
        {"key_start_loc": None, "key": query(11, 2, 16), "value": query(11, 2, 16)},
        "query_start_loc",
        "12",
    ),
    (
        "block past the cache",
        PAGED,
        {"block_table": int32([[0, 1, 7], [3, 4, 0]])},
        "block_table",
        "7",
    ),
    (
        "block huge",
        PAGED,
        {"block_table": int32([[0, 1, 2], [3, 2**31 - 1, 0]])},
        "block_table",
        str(2**31 - 1),
    ),
    ("block negative", PAGED, {"block_table": int32([[0, 1, 2], [-1, 4, 0]])}, "block_table", "-1"),
    ("seq_lens negative", PAGED, {"seq_lens": int32([9, -3])}, "seq_lens", "-3"),
    ("seq_lens past the table", PAGED, {"block_table": int32([[0, 1], [3, 4]])}, "seq_lens", "9"),
    ("seq_lens huge", PAGED, {"seq_lens": int32([2**31 - 1, 7])}, "seq_lens", str(2**31 - 1)),
    ("seq_lens below the queries", PAGED, {"seq_lens": int32([4, 7])}, "seq_lens", "4"),
    ("table without columns", PAGED, {"block_table": int32([[], []])}, "seq_lens", "9"),
]


@pytest.mark.parametrize(
    ("case", "changes", "name", "value"),
    [b[1:] for b in BAD_VALUES],
    ids=[b[0] for b in BAD_VALUES],
)
def test_bad_values(case: Case, changes: Call, name: str, value: str, isa: str) -> None:
    assert_refused(make(case) | changes, name, value)


def test_fewer_cached_keys_than_queries_is_fine_if_not_causal() -> None:
    """Cross-attention: no query stands at a position among the keys."""
    call = make(PAGED.but(lengths=((5, 3), (7, 7)), causal=False))
    assert isinstance(attention_prefill(**call), torch.Tensor)


BAD_MERGES: dict[str, tuple[Call, str, str]] = {
    "output_a: axes": ({"output_a": torch.zeros(9, 32)}, "output_a", "(9, 32)"),
    "output_a: dtype": ({"output_a": torch.zeros(9, 2, 16).double()}, "output_a", "torch.float64"),
    "output_b: shape": ({"output_b": torch.zeros(8, 2, 16)}, "output_b", "(8, 2, 16)"),
    "output_b: dtype": ({"output_b": torch.zeros(9, 2, 16).half()}, "output_b", "torch.float16"),
    "lse_a: transposed": ({"lse_a": torch.zeros(9, 2)}, "lse_a", "(9, 2)"),
    "lse_a: dtype": ({"lse_a": torch.zeros(2, 9).double()}, "lse_a", "torch.float64"),
    "lse_b: shape": ({"lse_b": torch.zeros(2, 8)}, "lse_b", "(2, 8)"),
    "lse_b: device": ({"lse_b": torch.zeros(2, 9, device=META)}, "lse_b", "meta"),
    "out: shape": ({"out": torch.zeros(9, 1, 16)}, "out", "(9, 1, 16)"),
    "out: expanded": ({"out": torch.zeros(1, 2, 16).expand(9, -1, -1)}, "out", "(0, 16, 1)"),
    "output_a: grad": ({"output_a": torch.zeros(9, 2, 16, requires_grad=True)}, "output_a", "grad"),
}


@pytest.mark.parametrize(("changes", "name", "value"), BAD_MERGES.values(), ids=BAD_MERGES)
def test_bad_merge(changes: Call, name: str, value: str) -> None:
    out = nan(9, 2, 16, dtype=torch.float32)
    call: Call = {"output_a": torch.zeros(9, 2, 16), "lse_a": torch.zeros(2, 9)}
    call |= {"output_b": torch.zeros(9, 2, 16), "lse_b": torch.zeros(2, 9), "out": out}
    with pytest.raises(ValueError) as raised:
        merge_attention(**(call | changes))
    assert_names(str(raised.value), name, value)
    assert out.isnan().all()


@pytest.mark.parametrize("part", ["output_a", "output_b", "out"])
def test_merge_takes_outputs_without_dense_memory(part: str) -> None:
    """An expanded side is readable: only `out` may not share memory with itself."""
    sides: Call = {name: torch.ones(9, 2, 16) for name in ("output_a", "output_b", "out")}
    lse = torch.zeros(2, 9)
    if part != "out":
        sides[part] = torch.ones(1, 2, 16).expand(9, -1, -1)
    merged, _ = merge_attention(sides["output_a"], lse, sides["output_b"], lse, out=sides["out"])
    assert (merged == 1).all()
