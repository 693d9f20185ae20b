"""Keys split over threads: one request, few rows, a long context. When, and to the same result."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from hk_backend.ops import attention_prefill
from tests.forked import Programs
from tests.ops.cases import Call, Case, make
from tests.ops.layouts import LAYOUTS
from tests.ops.oracle import check, expected
from tests.ops.strategies import DTYPES, FP8_DTYPES, cases, generated

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
    """Only a split of keys changes bits: cutting rows does not (test_attention_threads.py)."""
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
def test_keys_are_split_where_rows_cannot_occupy_the_threads(
    rule: str, threads: None, isa: str
) -> None:
    lengths, (heads, kv_heads), count, split = RULE[rule]
    case = Case(lengths=lengths, num_heads=heads, num_kv_heads=kv_heads)
    assert is_split(case, count) == split
    check(make(case))


def test_keys_behind_the_window_do_not_count(threads: None) -> None:
    """With 64 channels a split has 512 keys or more."""
    case = LONG.but(lengths=((1, 4000),))
    assert not is_split(case.but(sliding_window=1023), 2)
    assert is_split(case.but(sliding_window=1024), 2)


@pytest.mark.parametrize("count", [2, 3, 7, 32])
def test_the_same_bits_for_the_same_plan(count: int, threads: None, isa: str) -> None:
    call = make(LONG.but(lengths=((5, 3000), (1, 17))))
    want = bits(call, count)
    assert not torch.equal(want, bits(call, 1))
    for _ in range(4):
        assert torch.equal(bits(call, count), want)


def test_calls_from_several_python_threads_at_once(tiny_splits: None) -> None:
    """Each has partial results of its own, of another size than the others'."""
    calls = [make(LONG.but(lengths=((1 + n, 300 + 150 * n),), seed=n)) for n in range(4)]
    wanted = [bits(call, 6) for call in calls]
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda call: bits(call, 6), calls * 8))
    for found, want in zip(results, wanted * 8, strict=True):
        assert torch.equal(found, want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_size", [64, 72, 128])
def test_tiny_splits(head_size: int, dtype: torch.dtype, tiny_splits: None, isa: str) -> None:
    case = ALL_AT_ONCE.but(head_size=head_size, dtype=dtype)
    assert is_split(case, 6)
    torch.set_num_threads(6)
    check(make(case))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kv_dtype", [torch.float16, *FP8_DTYPES])
def test_tiny_splits_of_every_cache(layout: str, kv_dtype: torch.dtype, tiny_splits: None) -> None:
    case = ALL_AT_ONCE.but(layout=layout, dtype=torch.float16, kv_dtype=kv_dtype)
    check(make(case.but(k_scale="per head", v_scale="number")))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [1, 2, 15, 16, 17, 31, 32, 33, 48, 129, 299, 300, 10**6])
def test_windows_that_hide_splits(window: int, causal: bool, tiny_splits: None, isa: str) -> None:
    """Rows of one item whose windows leave out some of its splits, at either end."""
    lengths = ((40, 300), (1, 300), (9, 9))
    check(make(LONG.but(lengths=lengths, num_heads=1, sliding_window=window, causal=causal)))


def test_rows_that_see_nothing_in_any_split(tiny_splits: None, isa: str) -> None:
    """Causal with more queries than keys: the first rows."""
    call = make(LONG.but(lengths=((48, 40),), num_heads=1))
    out, lse = attention_prefill(**call, return_lse=True)
    assert (out[:8] == 0).all()
    assert (lse[:, :8] == -math.inf).all()
    check(call)


@pytest.mark.parametrize("sink", [-math.inf, -1e4, -3.0, 0.0, 100.0, 1e4])
def test_a_sink_counts_once(sink: float, tiny_splits: None, isa: str) -> None:
    case = LONG.but(lengths=((2, 200), (9, 5)), num_heads=2)
    assert is_split(case, 6)
    torch.set_num_threads(6)
    check(make(case) | {"sinks": torch.tensor([sink, 0.5])})


def test_a_sink_of_infinity_takes_all_weight(tiny_splits: None, isa: str) -> None:
    call = make(LONG.but(num_heads=1)) | {"sinks": torch.tensor([math.inf])}
    out, lse = attention_prefill(**call, return_lse=True)
    assert (out == 0).all()
    assert (lse == math.inf).all()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("window", [None, 20])
def test_a_bad_key_reaches_only_rows_that_see_it(
    window: int | None, part: str, bad: float, tiny_splits: None, isa: str
) -> None:
    """Future keys and keys behind the window share splits, panels and rows' items with others."""
    for tokens in ((280,), (0, 255, 299), (16, 272)):
        call = make(LONG.but(lengths=((20, 300), (1, 64)), num_heads=2, sliding_window=window))
        call[part][list(tokens), 0] = bad
        finite = expected(call).out.isfinite()
        assert finite[20].all()  # the other request
        check(call)


def test_a_split_whose_scores_are_all_nan(tiny_splits: None, isa: str) -> None:
    """Its maximum is minus infinity, as if it had been hidden; its sum must not be."""
    call = make(LONG.but(lengths=((1, 300),), num_heads=1))
    call["key"][96:192] = torch.nan
    assert expected(call).out.isnan().all()
    check(call)


def test_a_maximum_far_above_the_other_splits(tiny_splits: None, isa: str) -> None:
    """Their weights are zero, or denormal, relative to it."""
    for peak in (0, 130, 299):
        call = make(LONG.but(lengths=((1, 300),), num_heads=1, scale=1.0))
        call["key"][peak] = call["query"][0, 0] * 2
        check(call)


@st.composite
def long_cases(draw: DrawFn) -> Case:
    """Few rows over a long context, ragged, some requests empty."""
    rows = st.integers(0, 12)
    cached = st.one_of(st.integers(0, 900), st.sampled_from((255, 256, 257, 511, 512, 767)))
    lengths = draw(st.lists(st.tuples(rows, cached), min_size=1, max_size=3))
    num_heads, num_kv_heads = draw(st.sampled_from(((9, 3), (8, 1), (14, 2), (32, 8), (1, 1))))
    base = draw(cases())
    fields = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
    return replace(base, lengths=tuple((new, new + old) for new, old in lengths), **fields)


@given(long_cases(), st.sampled_from((2, 5, 12, 40)), st.sampled_from((1, 2**10, 2**13)))
@generated(examples=75)
def test_any_long_call(threads: None, case: Case, count: int, split_elements: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hk_backend.devices.cpu.attention.SPLIT_ELEMENTS", split_elements)
        torch.set_num_threads(count)
        check(make(case))


@given(cases())
@generated(examples=20)
def test_any_call_on_every_instruction_set(tiny_splits: None, isa: str, case: Case) -> None:
    check(make(case))


def test_partial_results_are_bounded(programs: Programs) -> None:
    """Whatever the keys, and a share for each thread. In a process of its own."""
    program = """
import torch
from hk_backend.ops import attention_prefill

def memory(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) * 1024

torch.set_num_threads(8)

def run(keys):  # seven blocks of rows for eight threads: the most that is split
    q, k = torch.randn(7 * 256, 1, 256), torch.randn(keys, 1, 256)
    starts = [torch.tensor([0, n], dtype=torch.int32) for n in (len(q), keys)]
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")  # the peak starts over
    before = memory("VmRSS") - memory("RssFile")
    out = attention_prefill(q, k, k, query_start_loc=starts[0], key_start_loc=starts[1])
    assert out.isfinite().all()
    return memory("VmHWM") - memory("RssFile") - before  # a fork maps libraries on first use

print(run(4096), run(4 * 4096))
"""
    first, second = map(int, programs.check(program).split())
    partial = 2**24  # eight or nine splits of 1792 rows
    assert partial < first < 8 * 5 * 2**20  # and for each thread the buffer of an item
    assert second < first
