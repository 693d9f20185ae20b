"""Threads: those that share the keys of a request, and bits that do not depend on them.

Masks, shapes and hard numbers meet split keys in their own files, by the fixture `splits`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import example, given

from hk_backend.ops import attention_prefill
from tests.forked import Programs
from tests.ops.cases import Call, Case, make
from tests.ops.layouts import LAYOUTS
from tests.ops.oracle import check, check_result, expected
from tests.ops.strategies import FP8_DTYPES, cases, generated

LONG = Case(lengths=((3, 700),), num_heads=8, num_kv_heads=1)
ALL_AT_ONCE = LONG.but(
    lengths=((3, 300), (0, 40), (1, 131)),
    sinks=True,
    alibi=True,
    logits_soft_cap=20.0,
    sliding_window=150,
    before=2,
    after=3,
)


def bits(call: Call, threads: int) -> torch.Tensor:
    """Output and log-sum-exp, as integers that tell NaN from NaN."""
    torch.set_num_threads(threads)
    call = call | {"out": torch.zeros_like(call["query"])}
    out, lse = attention_prefill(**call, return_lse=True)
    return torch.cat([out.flatten().float(), lse.flatten()]).view(torch.int32)


def is_split(case: Case, threads: int) -> bool:
    """Whether keys are split: only that changes bits, cutting rows does not."""
    call = make(case)
    return not torch.equal(bits(call, 1), bits(call, threads))


# lengths, heads, threads, whether keys are split
RULE = {
    "one row for two threads": (((1, 2048),), (8, 1), 2, True),
    "one thread": (((1, 2048),), (8, 1), 1, False),
    "a KV head for each thread": (((1, 2048),), (8, 2), 2, False),
    "a KV head for one thread of three": (((1, 2048),), (8, 2), 3, True),
    "a request for each thread": (((1, 2048), (1, 2048)), (8, 1), 2, False),
    "one request far longer than the other": (((1, 2048), (1, 90)), (8, 1), 2, True),
    "512 rows for two threads": (((64, 2048),), (8, 1), 2, True),
    "rows enough for two threads": (((65, 2048),), (8, 1), 2, False),
    "rows not enough for three": (((65, 2048),), (8, 1), 3, True),
    "rows as small as without splits": (((192, 1100),), (1, 1), 2, False),
    "rows as small, and too few": (((191, 1100),), (1, 1), 2, True),
    "rows larger than without splits": (((192, 8192),), (1, 1), 2, True),
    "too few keys": (((1, 1023),), (8, 1), 2, False),
    "just enough keys": (((1, 1024),), (8, 1), 2, True),
    "few requests, many threads": (((2, 1500), (1, 1900), (0, 3000)), (4, 2), 8, True),
}


@pytest.mark.parametrize("rule", RULE)
def test_keys_are_split_where_rows_cannot_occupy_the_threads(rule: str, threads: None) -> None:
    lengths, (heads, kv_heads), count, split = RULE[rule]
    case = Case(lengths=lengths, num_heads=heads, num_kv_heads=kv_heads)
    assert is_split(case, count) == split
    check(make(case))


@pytest.mark.parametrize("count", [2, 3, 7, 32])
def test_the_same_bits_for_the_same_plan(count: int, threads: None, isa: str) -> None:
    call = make(LONG.but(lengths=((5, 3000), (1, 17))))
    want = bits(call, count)
    assert not torch.equal(want, bits(call, 1))
    for _ in range(4):
        assert torch.equal(bits(call, count), want)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kv_dtype", [torch.float16, *FP8_DTYPES])
def test_tiny_splits_of_every_cache(layout: str, kv_dtype: torch.dtype, tiny_splits: None) -> None:
    case = ALL_AT_ONCE.but(layout=layout, dtype=torch.float16, kv_dtype=kv_dtype)
    check(make(case.but(k_scale="per head", v_scale="number")))


CASES = {
    "one long request": Case(lengths=((700, 700),), num_heads=4, num_kv_heads=2),
    "ragged": ALL_AT_ONCE.but(
        lengths=((300, 300), (1, 500), (0, 9), (65, 400), (2, 2)), num_heads=9, num_kv_heads=3
    ),
    "paged": Case(lengths=((200, 500), (77, 77)), layout="one [B,H,N,2D]", dtype=torch.bfloat16),
    "nothing": Case(lengths=()),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_same_bits_for_any_number_of_threads(case: Case, threads: None, isa: str) -> None:
    """These cases have rows enough for all of the threads."""
    call = make(case)
    want = bits(call, 1)
    for count in (2, 3, 5, 2):
        assert torch.equal(bits(call, count), want)


def test_calls_from_several_python_threads_at_once(splits: bool, isa: str) -> None:
    """Each of an engine's workers has scratch memory and partial results of its own size."""
    calls = [make(LONG.but(lengths=((1 + 30 * n, 300 + 90 * n),), seed=n)) for n in range(4)]
    wanted = [expected(call) for call in calls]
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda call: attention_prefill(**call, return_lse=True), calls * 5))
    for want, (out, lse) in zip(wanted * 5, results, strict=True):
        check_result(want, out, lse, out)


def test_no_thread_beside_those_of_torch(programs: Programs) -> None:
    """One pool in the process: a call adds no thread once torch has as many as it was told."""
    program = """
import os, torch
from hk_backend.ops import attention_prefill

def run():
    q, k, v = torch.randn(3, 600, 4, 64)
    starts = torch.tensor([0, 600], dtype=torch.int32)
    return attention_prefill(q, k, v, query_start_loc=starts)

def alive():
    return len(os.listdir("/proc/self/task"))

torch.set_num_threads(1)
run()
alone = alive()
run()
assert alive() == alone, "a call on one thread left a thread behind"
torch.set_num_threads(3)
torch.randn(2000, 2000).exp()  # torch starts its own
pool = alive()
assert pool == alone + 2, (alone, pool)
run()
assert alive() == pool, (pool, alive())
"""
    programs.check(program)


@example(Case(lengths=()))
@example(Case(lengths=(), layout="NHD, two tensors", after=4))
@example(Case(lengths=((0, 0),), after=2))
@example(Case(lengths=((1, 1),), num_heads=1))
@given(cases())
@generated(examples=100)
def test_any_call(case: Case) -> None:
    check(make(case))


@given(cases())
@generated(examples=8)
def test_any_call_on_every_instruction_set(splits: bool, isa: str, case: Case) -> None:
    check(make(case))
