"""Threads: torch's own, as many as torch is told to use, and the same bits for any number of them
unless keys are split over them (test_attention_splits.py)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from hk_backend.ops import attention_prefill, merge_attention
from tests.forked import Programs
from tests.ops.cases import Case, make
from tests.ops.oracle import check_result, expected

CASES = {
    "one long request": Case(lengths=((700, 700),), num_heads=4, num_kv_heads=2),
    "ragged": Case(
        lengths=((300, 300), (1, 500), (0, 9), (65, 400), (2, 2)),
        num_heads=9,
        num_kv_heads=3,
        sinks=True,
        alibi=True,
    ),
    "window": Case(lengths=((600, 600),), sliding_window=130, logits_soft_cap=20.0),
    "paged": Case(lengths=((200, 500), (77, 77)), layout="one [B,H,N,2D]", dtype=torch.bfloat16),
    "nothing": Case(lengths=()),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_same_bits_for_any_number_of_threads(case: Case, threads: None, isa: str) -> None:
    call = make(case)
    results = []
    for count in (1, 2, 3, 5, 2):
        torch.set_num_threads(count)
        out, lse = attention_prefill(**call, return_lse=True)
        results.append((out[~out.isnan()], lse))
    for out, lse in results[1:]:
        assert torch.equal(out, results[0][0])
        assert torch.equal(lse, results[0][1])


def test_merge_gives_the_same_bits_for_any_number_of_threads(threads: None, isa: str) -> None:
    out, lse = torch.randn(2, 300, 4, 64), torch.randn(2, 4, 300)
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append(merge_attention(out[0], lse[0], out[1], lse[1]))
    for merged, total in results[1:]:
        assert torch.equal(merged, results[0][0])
        assert torch.equal(total, results[0][1])


def test_calls_from_several_python_threads_at_once(isa: str) -> None:
    """As an engine with several workers in one process: each call has its own scratch memory."""
    calls = [
        make(Case(lengths=((90 + 7 * n, 120 + 9 * n),), head_size=(64, 128, 72)[n % 3], seed=n))
        for n in range(6)
    ]
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
