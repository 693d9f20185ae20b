"""The checker must be able to fail: the smallest faults that a kernel could have are caught."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from hk_backend import reference
from tests.ops.cases import Call, Case, arguments, int32, make
from tests.ops.oracle import check_result, expected
from tests.ops.strategies import DTYPES

FLOAT_WEIGHTS = torch.float32
"""The bounds of kernels that hand softmax weights on in float32, whatever this processor does."""
Result = tuple[torch.Tensor, torch.Tensor]
"""Output in the dtype of the query, log-sum-exp in float32."""

PACKED = Case(
    lengths=((40, 70), (33, 33), (1, 20)),
    num_heads=6,
    num_kv_heads=3,
    sliding_window=19,
    logits_soft_cap=3.0,
    sinks=True,
    alibi=True,
    after=2,
)
PAGED = PACKED.but(
    layout="NHD, two tensors",
    kv_dtype=torch.float8_e4m3fn,
    k_scale="per head",
    v_scale="per head",
    sliding_window=None,
)


def exact(call: Call) -> Result:
    """The result of a perfect kernel: the reference, rounded once."""
    out, lse = reference.attention_prefill(arguments(call))
    return out.to(call["query"].dtype), lse.float()


def without_last_key(call: Call) -> Call:
    """A call whose last row of the first request does not see its last key; all else is equal."""
    rows = slice(39, 40)
    keys = {name: call[name][:69] for name in ("key", "value")}
    starts = {"query_start_loc": int32([0, 1]), "key_start_loc": int32([0, 69])}
    return call | keys | starts | {"query": call["query"][rows], "sliding_window": 18}


def drop_last_key(call: Call) -> Result:
    out, lse = exact(call)
    out[39:40], lse[:, 39:40] = exact(without_last_key(call))
    return out, lse


def on_result(change: Callable[[torch.Tensor, torch.Tensor], Result]) -> Callable[[Call], Result]:
    return lambda call: change(*exact(call))


def on_call(**changes: Callable[[Call], object]) -> Callable[[Call], Result]:
    return lambda call: exact(call | {name: change(call) for name, change in changes.items()})


def one_element(out: torch.Tensor, lse: torch.Tensor) -> Result:
    out[17, 3, 5] *= 1.02
    return out, lse


def row_lost(out: torch.Tensor, lse: torch.Tensor) -> Result:
    return out.index_fill(0, torch.tensor([50]), math.nan), lse


def write_past_the_batch(out: torch.Tensor, lse: torch.Tensor) -> Result:
    out[-1, 0, 0] = 1.0
    return out, lse


FAULTS: dict[str, tuple[Case, Callable[[Call], Result]]] = {
    "one element times 1.02": (PACKED, on_result(one_element)),
    "row not written": (PACKED, on_result(row_lost)),
    "last key dropped": (PACKED, drop_last_key),
    "foreign row written": (PACKED, on_result(write_past_the_batch)),
    "window one too wide": (PACKED, on_call(sliding_window=lambda c: 20)),
    "window one too narrow": (PACKED, on_call(sliding_window=lambda c: 18)),
    "scale times 1.02": (PACKED, on_call(scale=lambda c: 1.02 / 8)),
    "cap times 1.02": (PACKED, on_call(logits_soft_cap=lambda c: 3.06)),
    "sinks swapped": (PACKED, on_call(sinks=lambda c: c["sinks"].flip(0))),
    "log-sum-exp off by 1e-3": (PACKED, on_result(lambda out, lse: (out, lse + 1e-3))),
    "k_scale of another head": (PAGED, on_call(k_scale=lambda c: c["k_scale"].flip(0))),
    "v_scale of another head": (PAGED, on_call(v_scale=lambda c: c["v_scale"].flip(0))),
    "one key too few in the cache": (PAGED, on_call(seq_lens=lambda c: c["seq_lens"] - 1)),
    "one key too many in the cache": (PAGED, on_call(seq_lens=lambda c: c["seq_lens"] + 1)),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_caught(fault: str, dtype: torch.dtype) -> None:
    case, faulty = FAULTS[fault]
    call = make(case.but(dtype=dtype))
    want = expected(call, FLOAT_WEIGHTS)
    out, lse = exact(call)
    check_result(want, out, lse, out)  # the same call without the fault passes
    wrong = faulty(call)
    with pytest.raises(AssertionError):
        check_result(want, *wrong, out)
    # weights in bfloat16 may move an element whose terms cancel by more than 2%, and no more
    if dtype == torch.bfloat16 and fault != "one element times 1.02":
        rounded = expected(call, torch.bfloat16)
        check_result(rounded, out, lse, out)
        with pytest.raises(AssertionError):
            check_result(rounded, *wrong, out)


@pytest.mark.parametrize("part", ["query", "key", "value"])
def test_float32_bounds_catch_inputs_rounded_to_float16(part: str) -> None:
    """The bounds of float32 are tight enough to see that a kernel computes in less."""
    call = make(PACKED)
    want = expected(call)
    rounded = {part: call[part].half().float()}
    out, lse = exact(call | rounded)
    with pytest.raises(AssertionError):
        check_result(want, out, lse, out)
