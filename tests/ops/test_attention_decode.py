"""`attention_decode` against its definition, on the cpu device and on the emulated gfx950."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from hk_backend import ops
from hk_backend.ops import attention_decode
from tests.ops.cases import Call, Case, int32, make, nan, output_of
from tests.ops.oracle import check_result, expected

LLAMA = Case(
    lengths=((1, 300), (0, 7), (4, 90), (1, 1), (2, 700)),
    num_heads=4,
    num_kv_heads=2,
    head_size=128,
    dtype=torch.bfloat16,
    layout="NHD, two tensors",
)
CASES = {
    "llama": LLAMA,
    "d=64, window and sinks": LLAMA.but(head_size=64, sliding_window=40, sinks=True),
    "float16, pages of one": LLAMA.but(dtype=torch.float16, block_size=1),
    "fp8": LLAMA.but(kv_dtype=torch.float8_e4m3fn, k_scale="per head", v_scale="number"),
    "soft cap": LLAMA.but(head_size=256, logits_soft_cap=20.0),
    "soft cap, d=64": LLAMA.but(head_size=64, logits_soft_cap=20.0, sinks=True),
    "soft cap, fp8": LLAMA.but(
        kv_dtype=torch.float8_e4m3fn, k_scale="number", v_scale="number", logits_soft_cap=20.0
    ),
    "alibi": LLAMA.but(alibi=True, sliding_window=90),
    "d=80": LLAMA.but(head_size=80, sliding_window=40, sinks=True),
    "d=96, pages of one": LLAMA.but(head_size=96, block_size=1),
    "d=192, values of 128": LLAMA.but(head_size=192, value_size=128),
    "padding around": LLAMA.but(before=2, after=5),
}


def decode(call: Call, **more: Any) -> Any:
    """Calls the operator with a case's arguments."""
    given = {name: value for name, value in call.items() if name != "causal"}
    longest = int(call["query_start_loc"].diff().max())
    return attention_decode(**{**given, "max_query_len": longest, **more})


def check(case: Case) -> None:
    """Compares all that a call writes with what is expected; other rows stay as they are."""
    call = make(case)
    shape, dtype = output_of(call).shape, call["query"].dtype
    out = nan(*shape, dtype=dtype)
    untouched = out.clone()
    result, lse = decode(call, out=out, return_lse=True)
    assert result is out
    check_result(expected(call, dtype), out, lse, untouched)


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_on_the_host(case: Case) -> None:
    check(case)


@pytest.mark.usefixtures("on_gfx950")
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_on_gfx950(case: Case) -> None:
    check(case)


BAD = [
    ("max_query_len: 0", {"max_query_len": 0}),
    ("paged_kv: None", {"paged_kv": None}),
    ("block_table: None", {"block_table": None}),
    ("seq_lens: (2,)", {"seq_lens": int32([1, 2])}),
    ("sliding_window: 0", {"sliding_window": 0}),
    ("query_start_loc: a request of 4 tokens", {"max_query_len": 3}),
]


@pytest.mark.parametrize(("message", "changes"), BAD, ids=[message for message, _ in BAD])
def test_bad_arguments_are_named(message: str, changes: dict[str, Any]) -> None:
    call = make(LLAMA)
    out = nan(*output_of(call).shape, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=re.escape(message)):
        decode(call, out=out, **changes)
    assert out.isnan().all()


def test_torch_compiles_it() -> None:
    """The registered operator has the same result as a direct call."""
    call = make(LLAMA)
    direct = decode(call)

    @torch.compile(backend="eager", fullgraph=True)
    def compiled(query: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        given = {**call, "query": query}
        given.pop("causal")
        found = attention_decode(**given, max_query_len=4, out=out)
        assert isinstance(found, torch.Tensor)
        return found

    assert torch.equal(compiled(call["query"], torch.empty_like(direct)), direct)


def test_the_host_decides_from_facts() -> None:
    request = ops.DecodeRequest("cpu", torch.bfloat16, 32, 8, 128)
    assert ops.supports(request)
    assert not ops.supports(ops.DecodeRequest("cpu", torch.bfloat16, 32, 8, 129))
