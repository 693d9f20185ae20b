"""Bad arguments are named with their value and the valid ones; nothing is written."""

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


# the argument and the value that the error names; the arguments that are replaced
BAD_PACKED: list[tuple[str, Call]] = [
    ("query: (12, 64)", {"query": query(12, 64)}),
    ("query: ()", {"query": torch.tensor(1.0)}),
    ("query: torch.float64", {"query": query(12, 4, 16).double()}),
    ("query: 12", {"query": query(12, 4, 12)}),
    ("query: 264", {"query": query(12, 4, 264)}),
    ("query: head_size 0", {"query": query(12, 4, 0)}),
    ("query: 3 heads", {"query": query(12, 3, 16)}),
    ("query: 0 heads", {"query": query(12, 0, 16)}),
    ("query: grad", {"query": query(12, 4, 16).requires_grad_()}),
    ("key: None", {"key": None}),
    ("value: None", {"value": None}),
    ("key: (16, 32)", {"key": query(16, 32)}),
    ("key: (16, 2, 24)", {"key": query(16, 2, 24)}),
    ("key: torch.float16", {"key": query(16, 2, 16).half()}),
    ("key: meta", {"key": query(16, 2, 16).to(META)}),
    ("key: 0 heads", {"key": query(16, 0, 16), "value": query(16, 0, 16)}),
    ("key: grad", {"key": query(16, 2, 16).requires_grad_()}),
    ("value: grad", {"value": query(16, 2, 16).requires_grad_()}),
    ("value: (15, 2, 16)", {"value": query(15, 2, 16)}),
    ("value: (16, 4, 16)", {"value": query(16, 4, 16)}),
    ("value: 12 channels", {"value": query(16, 2, 12)}),
    ("value: 264 channels", {"value": query(16, 2, 264)}),
    ("value: torch.bfloat16", {"value": query(16, 2, 16).bfloat16()}),
    ("query_start_loc: torch.int64", {"query_start_loc": int32([0, 5, 12]).long()}),
    ("query_start_loc: (1, 3)", {"query_start_loc": int32([[0, 5, 12]])}),
    ("query_start_loc: (0,)", {"query_start_loc": int32([])}),
    ("query_start_loc: meta", {"query_start_loc": int32([0, 5, 12]).to(META)}),
    ("key_start_loc: (2,)", {"key_start_loc": int32([0, 9])}),
    ("key_start_loc: torch.int64", {"key_start_loc": int32([0, 9, 16]).long()}),
    ("seq_lens: a tensor", {"seq_lens": int32([9, 7])}),
    ("block_table: a tensor", {"block_table": int32([[0], [1]])}),
    ("sliding_window: 0", {"sliding_window": 0}),
    ("logits_soft_cap: -1.0", {"logits_soft_cap": -1.0}),
    ("logits_soft_cap: nan", {"logits_soft_cap": float("nan")}),
    ("logits_soft_cap: inf", {"logits_soft_cap": float("inf")}),
    ("scale: nan", {"scale": float("nan")}),
    ("scale: inf", {"scale": float("inf")}),
    ("k_scale: nan", {"k_scale": float("nan")}),
    ("v_scale: inf", {"v_scale": float("inf")}),
    ("sinks: (2,)", {"sinks": torch.zeros(2)}),
    ("sinks: torch.float16", {"sinks": torch.zeros(4).half()}),
    ("alibi_slopes: (4, 1)", {"alibi_slopes": torch.zeros(4, 1)}),
    ("alibi_slopes: torch.float64", {"alibi_slopes": torch.zeros(4).double()}),
    ("alibi_slopes: meta", {"alibi_slopes": torch.zeros(4, device=META)}),
    ("k_scale: (4,)", {"k_scale": torch.ones(4)}),
    ("k_scale: ()", {"k_scale": torch.tensor(1.0)}),
    ("v_scale: torch.bfloat16", {"v_scale": torch.ones(2).bfloat16()}),
]
BAD_PAGED: list[tuple[str, Call]] = [
    ("key: a tensor", {"key": query(16, 2, 16)}),
    ("value: a tensor", {"value": query(16, 2, 16)}),
    ("key_start_loc: a tensor", {"key_start_loc": int32([0, 9, 16])}),
    ("block_table: None", {"block_table": None}),
    ("seq_lens: None", {"seq_lens": None}),
    ("block_table: (2,)", {"block_table": int32([0, 1])}),
    ("block_table: (3, 3)", {"block_table": int32([[0, 1, 2]] * 3)}),
    ("block_table: torch.int64", {"block_table": int32([[0, 1, 2]] * 2).long()}),
    ("seq_lens: (3,)", {"seq_lens": int32([9, 7, 1])}),
    ("seq_lens: torch.int64", {"seq_lens": int32([9, 7]).long()}),
    ("paged_kv: 16", {"query": query(12, 4, 24)}),
    ("query: 3 heads", {"query": query(12, 3, 16)}),
    ("paged_kv: torch.float32", {"query": query(12, 4, 16).half()}),
    ("paged_kv: 0", {"paged_kv": paged_of(block_size=0)}),
]


def cases(packed: list[tuple[str, Call]], paged: list[tuple[str, Call]]) -> pytest.MarkDecorator:
    """Parametrise by a call, the error that it must give, and what makes it wrong."""
    found = [(PACKED, *row) for row in packed] + [(PAGED, *row) for row in paged]
    return pytest.mark.parametrize(
        ("case", "error", "changes"), found, ids=[error for _, error, _ in found]
    )


@cases(BAD_PACKED, BAD_PAGED)
def test_bad_argument(case: Case, error: str, changes: Call) -> None:
    assert_refused(make(case) | changes, error)


def assert_refused(call: Call, error: str) -> None:
    """Assert a ValueError "name: value ... expected ...", and an output that is still NaN."""
    shape = call["query"].shape
    out = nan(*shape, dtype=torch.float32).to(call["query"].dtype)
    before = out.clone()
    with pytest.raises(ValueError) as raised:
        attention_prefill(**call, out=out, return_lse=True)
    assert_names(str(raised.value), error)
    assert torch.equal(out.flatten().view(torch.uint8), before.flatten().view(torch.uint8))


def assert_names(message: str, error: str) -> None:
    name, value = error.split(": ")
    assert re.match(rf"{re.escape(name)}(\[\d+\])*: ", message), message
    assert value in message.partition("expected")[0], message
    assert "expected" in message


BAD_OUT: dict[str, Callable[[], torch.Tensor]] = {
    "(12, 4, 8)": lambda: torch.zeros(12, 4, 8),
    "(11, 4, 16)": lambda: torch.zeros(11, 4, 16),
    "(12, 64)": lambda: torch.zeros(12, 64),
    "torch.float16": lambda: torch.zeros(12, 4, 16).half(),
    "meta": lambda: torch.zeros(12, 4, 16, device=META),
    "(0, 16, 1)": lambda: torch.zeros(1, 4, 16).expand(12, -1, -1),
    "(40, 8, 1)": lambda: torch.zeros(800).as_strided((12, 4, 16), (40, 8, 1)),  # overlaps
    "grad": lambda: torch.zeros(12, 4, 16).requires_grad_(),
}


@pytest.mark.parametrize(("value", "build"), BAD_OUT.items(), ids=list(BAD_OUT))
def test_bad_output(value: str, build: Callable[[], torch.Tensor]) -> None:
    out = build()
    with pytest.raises(ValueError) as raised:
        attention_prefill(**make(PACKED), out=out)
    assert_names(str(raised.value), f"out: {value}")
    assert out.is_meta or (out == 0).all()


# read on the CPU only
BAD_VALUES_PACKED: list[tuple[str, Call]] = [
    ("query_start_loc: 5", {"query_start_loc": int32([0, 8, 5])}),
    ("query_start_loc: 12", {"query_start_loc": int32([0, 13, 12])}),
    ("query_start_loc: -1", {"query_start_loc": int32([-1, 5, 12])}),
    ("query_start_loc: 13", {"query_start_loc": int32([0, 5, 13])}),
    (f"query_start_loc: {2**31 - 1}", {"query_start_loc": int32([0, 5, 2**31 - 1])}),
    ("key_start_loc: 16", {"key_start_loc": int32([0, 17, 16])}),
    ("key_start_loc: -2", {"key_start_loc": int32([-2, 9, 16])}),
    ("key_start_loc: 17", {"key_start_loc": int32([0, 9, 17])}),
    (
        "query_start_loc: 12",
        {"key_start_loc": None, "key": query(11, 2, 16), "value": query(11, 2, 16)},
    ),
]
BAD_VALUES_PAGED: list[tuple[str, Call]] = [
    ("block_table: 7", {"block_table": int32([[0, 1, 7], [3, 4, 0]])}),
    (f"block_table: {2**31 - 1}", {"block_table": int32([[0, 1, 2], [3, 2**31 - 1, 0]])}),
    ("block_table: -1", {"block_table": int32([[0, 1, 2], [-1, 4, 0]])}),
    ("seq_lens: -3", {"seq_lens": int32([9, -3])}),
    ("seq_lens: -3", {"seq_lens": int32([9, -3]), "query_start_loc": int32([0, 5, 5])}),
    ("seq_lens: 9", {"block_table": int32([[0, 1], [3, 4]])}),
    (f"seq_lens: {2**31 - 1}", {"seq_lens": int32([2**31 - 1, 7])}),
    ("seq_lens: 4", {"seq_lens": int32([4, 7])}),
    ("seq_lens: 9", {"block_table": int32([[], []])}),
]


@cases(BAD_VALUES_PACKED, BAD_VALUES_PAGED)
def test_bad_values(case: Case, error: str, changes: Call, isa: str) -> None:
    assert_refused(make(case) | changes, error)


BAD_MERGES: list[tuple[str, Call]] = [
    ("output_a: (9, 32)", {"output_a": torch.zeros(9, 32)}),
    ("output_a: torch.float64", {"output_a": torch.zeros(9, 2, 16).double()}),
    ("output_b: (8, 2, 16)", {"output_b": torch.zeros(8, 2, 16)}),
    ("output_b: torch.float16", {"output_b": torch.zeros(9, 2, 16).half()}),
    ("lse_a: (9, 2)", {"lse_a": torch.zeros(9, 2)}),
    ("lse_a: torch.float64", {"lse_a": torch.zeros(2, 9).double()}),
    ("lse_b: (2, 8)", {"lse_b": torch.zeros(2, 8)}),
    ("lse_b: meta", {"lse_b": torch.zeros(2, 9, device=META)}),
    ("out: (9, 1, 16)", {"out": torch.zeros(9, 1, 16)}),
    ("out: (0, 16, 1)", {"out": torch.zeros(1, 2, 16).expand(9, -1, -1)}),
    ("output_a: grad", {"output_a": torch.zeros(9, 2, 16, requires_grad=True)}),
]


@pytest.mark.parametrize(("error", "changes"), BAD_MERGES, ids=[bad[0] for bad in BAD_MERGES])
def test_bad_merge(error: str, changes: Call) -> None:
    out = nan(9, 2, 16, dtype=torch.float32)
    call: Call = {"output_a": torch.zeros(9, 2, 16), "lse_a": torch.zeros(2, 9)}
    call |= {"output_b": torch.zeros(9, 2, 16), "lse_b": torch.zeros(2, 9), "out": out}
    with pytest.raises(ValueError) as raised:
        merge_attention(**(call | changes))
    assert_names(str(raised.value), error)
    assert out.isnan().all()
