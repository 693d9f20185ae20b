"""The checker must be able to fail: each fault that a kernel could have is shown to be caught."""

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
    """What a perfect kernel returns: the reference, rounded once."""
    out, lse = reference.attention_prefill(arguments(call))
    return out.to(call["query"].dtype), lse.float()


def without_last_key(call: Call) -> Call:
    """The last key hidden from the last row of the first request, nothing else changed."""
    rows = slice(39, 40)
    keys = {name: call[name][:69] for name in ("key", "value")}
    starts = {"query_start_loc": int32([0, 1]), "key_start_loc": int32([0, 69])}
    part = call | keys | starts | {"query": call["query"][rows], "sliding_window": 18}
    if part["alibi_slopes"] is not None:
        part["alibi_slopes"] = call["alibi_slopes"]
    return part


def drop_last_key(call: Call) -> Result:
    out, lse = exact(call)
    out[39:40], lse[:, 39:40] = exact(without_last_key(call))
    return out, lse


def on_result(change: Callable[[torch.Tensor, torch.Tensor], Result]) -> Callable[[Call], Result]:
    return lambda call: change(*exact(call))


def on_call(**changes: Callable[[Call], object]) -> Callable[[Call], Result]:
    return lambda call: exact(call | {name: change(call) for name, change in changes.items()})


def swap_heads(out: torch.Tensor, lse: torch.Tensor) -> Result:
    order = [1, 0, 2, 3, 4, 5]
    return out[:, order], lse[order]


def skip_row(out: torch.Tensor, lse: torch.Tensor) -> Result:
    out[50] = math.nan
    return out, lse


def one_element(out: torch.Tensor, lse: torch.Tensor) -> Result:
    out[17, 3, 5] *= 1.02
    return out, lse


def write_past_the_batch(out: torch.Tensor, lse: torch.Tensor) -> Result:
    out[-1, 0, 0] = 1.0
    return out, lse


def swapped_blocks(call: Call) -> torch.Tensor:
    table: torch.Tensor = call["block_table"].clone()
    table[0, [0, 1]] = table[0, [1, 0]]
    return table


def without_prefix(call: Call) -> Result:
    """The cached tokens of an extend ignored: only its new keys are read."""
    index = [*range(30, 70), *range(70, 123)]
    keys = {name: call[name][index] for name in ("key", "value")}
    return exact(call | keys | {"key_start_loc": int32([0, 40, 73, 93])})


FAULTS: dict[str, tuple[Case, Callable[[Call], Result]]] = {
    "output times 1.02": (PACKED, on_result(lambda out, lse: (out * 1.02, lse))),
    "one element times 1.02": (PACKED, on_result(one_element)),
    "last key dropped": (PACKED, drop_last_key),
    "prefix ignored": (PACKED, without_prefix),
    "heads swapped": (PACKED, on_result(swap_heads)),
    "KV heads interleaved": (PACKED, on_call(value=lambda c: c["value"][:, [1, 2, 0]])),
    "row not written": (PACKED, on_result(skip_row)),
    "foreign row written": (PACKED, on_result(write_past_the_batch)),
    "window one too wide": (PACKED, on_call(sliding_window=lambda c: 20)),
    "window one too narrow": (PACKED, on_call(sliding_window=lambda c: 18)),
    "window ignored": (PACKED, on_call(sliding_window=lambda c: None)),
    "not causal": (PACKED, on_call(causal=lambda c: False)),
    "scale times 1.02": (PACKED, on_call(scale=lambda c: 1.02 / 8)),
    "cap ignored": (PACKED, on_call(logits_soft_cap=lambda c: None)),
    "cap times 1.02": (PACKED, on_call(logits_soft_cap=lambda c: 3.06)),
    "sinks ignored": (PACKED, on_call(sinks=lambda c: None)),
    "sinks swapped": (PACKED, on_call(sinks=lambda c: c["sinks"].flip(0))),
    "alibi ignored": (PACKED, on_call(alibi_slopes=lambda c: None)),
    "alibi reversed": (PACKED, on_call(alibi_slopes=lambda c: -c["alibi_slopes"])),
    "log-sum-exp in base 2": (PACKED, on_result(lambda out, lse: (out, lse / math.log(2)))),
    "log-sum-exp off by 1e-3": (PACKED, on_result(lambda out, lse: (out, lse + 1e-3))),
    "log-sum-exp transposed": (PACKED, on_result(lambda out, lse: (out, lse.flip(0)))),
    "k_scale ignored": (PAGED, on_call(k_scale=lambda c: 1.0)),
    "k_scale of another head": (PAGED, on_call(k_scale=lambda c: c["k_scale"].flip(0))),
    "v_scale ignored": (PAGED, on_call(v_scale=lambda c: 1.0)),
    "v_scale of another head": (PAGED, on_call(v_scale=lambda c: c["v_scale"].flip(0))),
    "one key too few in the cache": (PAGED, on_call(seq_lens=lambda c: c["seq_lens"] - 1)),
    "one key too many in the cache": (PAGED, on_call(seq_lens=lambda c: c["seq_lens"] + 1)),
    "blocks in the wrong order": (PAGED, on_call(block_table=swapped_blocks)),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_caught(fault: str, dtype: torch.dtype) -> None:
    case, faulty = FAULTS[fault]
    call = make(case.but(dtype=dtype))
    want = expected(call, FLOAT_WEIGHTS)
    out, lse = exact(call)
    check_result(want, out, lse, out)  # the same call without the fault passes
    wrong_out, wrong_lse = faulty(call)
    with pytest.raises(AssertionError):
        check_result(want, wrong_out, wrong_lse, out)


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "one element times 1.02"])
def test_bounds_of_rounded_weights_catch_every_fault(fault: str) -> None:
    """Weights in bfloat16 may move an element whose terms cancel by more than 2%, and no more."""
    case, faulty = FAULTS[fault]
    call = make(case.but(dtype=torch.bfloat16))
    want = expected(call, torch.bfloat16)
    out, lse = exact(call)
    check_result(want, out, lse, out)
    with pytest.raises(AssertionError):
        check_result(want, *faulty(call), out)


SPLIT = Case(lengths=((3, 300),), num_heads=8, causal=False, sinks=True)
"""Of one request, and every row sees every key: any of them are a call of their own."""


def joined(
    call: Call, splits: int, sinks: int = 1, together: bool = True, scaled: bool = True
) -> Result:
    """The first `splits` of three splits of the keys, joined, with each sink counted so often.

    `together`: relative to one maximum; `scaled`: the sums, too.
    """
    parts = []
    for first in range(0, 100 * splits, 100):
        keys = {name: call[name][first : first + 100] for name in ("key", "value")}
        of = call | keys | {"key_start_loc": int32([0, 100]), "sinks": None}
        parts.append(reference.attention_prefill(arguments(of)))
    # as a split leaves it: the maximum apart, so that the sum of the weights is not 1
    tops = torch.stack([lse - 0.5 for _, lse in parts])
    top = tops.amax(0)
    weights = torch.exp(tops - top) if together else torch.ones_like(tops)
    sums = math.exp(0.5) * (weights if scaled else torch.ones_like(tops))
    total = sums.sum(0) + sinks * torch.exp(call["sinks"].double()[:, None] - top)
    outs = torch.stack([out for out, _ in parts]) * math.exp(0.5)
    out = (outs * weights.mT[..., None]).sum(0) / total.T[..., None]
    return out.to(call["query"].dtype), (top + total.log()).float()


JOINS: dict[str, dict[str, int | bool]] = {
    "a split dropped": {"splits": 2},
    "no sink": {"splits": 3, "sinks": 0},
    "a sink for each split": {"splits": 3, "sinks": 3},
    "each split relative to its own maximum": {"splits": 3, "together": False},
    "sums relative to their own maxima": {"splits": 3, "scaled": False},
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fault", JOINS)
def test_every_faulty_join_of_splits_is_caught(fault: str, dtype: torch.dtype) -> None:
    call = make(SPLIT.but(dtype=dtype))
    want = expected(call, FLOAT_WEIGHTS)
    out, lse = joined(call, splits=3)
    check_result(want, out, lse, out)
    wrong_out, wrong_lse = joined(call, **JOINS[fault])
    with pytest.raises(AssertionError):
        check_result(want, wrong_out, lse, out)
    with pytest.raises(AssertionError):
        check_result(want, out, wrong_lse, out)


@pytest.mark.parametrize("part", ["query", "key", "value"])
def test_float32_bounds_catch_inputs_rounded_to_float16(part: str) -> None:
    """The bounds of float32 are tight enough to see that a kernel computes in less."""
    call = make(PACKED)
    want = expected(call)
    rounded = {part: call[part].half().float()}
    out, lse = exact(call | rounded)
    with pytest.raises(AssertionError):
        check_result(want, out, lse, out)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_bounds_catch_an_output_rounded_twice_to_less(dtype: torch.dtype) -> None:
    """One rounding is allowed: an output that lost one more bit is not."""
    call = make(PACKED.but(dtype=dtype))
    want = expected(call, FLOAT_WEIGHTS)
    _, lse = exact(call)
    step = torch.finfo(dtype).eps * 2
    exponent = want.out.abs().clamp(min=1e-30).log2().floor().exp2()
    coarse = ((want.out / (exponent * step)).round() * exponent * step).to(dtype)
    with pytest.raises(AssertionError):
        check_result(want, coarse, lse, coarse)
