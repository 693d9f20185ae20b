"""Generated cases: hypothesis strategies, always the same examples in the same order."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tests.ops.cases import Case
from tests.ops.layouts import LAYOUTS

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
FP8_DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
HEAD_RATIOS = ((1, 1), (8, 8), (9, 3), (8, 1), (32, 8), (64, 8))
SCALE_KINDS = ("off", "number", "one", "per head")
EDGES = (1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65)
"""Lengths around the edges of every tile that a kernel may have."""


def generated(examples: int) -> settings:
    """Deterministic, no deadline (the reference is slow on purpose), no files written."""
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


query_lengths: SearchStrategy[int] = st.one_of(
    st.just(0), st.just(1), st.sampled_from(EDGES), st.integers(1, 80)
)
cached_lengths: SearchStrategy[int] = st.one_of(
    st.just(0), st.sampled_from((*EDGES, 127, 128, 129, 255, 256, 257)), st.integers(0, 300)
)


@st.composite
def cases(draw: DrawFn) -> Case:
    """Any call that the operator serves, small enough for the reference."""
    num_heads, num_kv_heads = draw(st.sampled_from(HEAD_RATIOS))
    head_size = draw(st.one_of(st.sampled_from((64, 128)), st.integers(1, 32).map(lambda n: 8 * n)))
    dtype = draw(st.sampled_from(DTYPES))
    kv_dtype = draw(st.sampled_from((dtype, dtype, *FP8_DTYPES)))
    value_size = draw(st.one_of(st.none(), st.none(), st.integers(1, 32).map(lambda n: 8 * n)))
    block_size = draw(st.sampled_from((1, 3, 5, 16, 32, 48, 128)))
    fitting = [
        name
        for name, layout in LAYOUTS.items()
        if layout.fits(block_size, head_size, kv_dtype, value_size)
    ]
    causal = draw(st.booleans())
    return Case(
        lengths=tuple(draw(st.lists(_lengths(causal), max_size=4))),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        value_size=value_size,
        dtype=dtype,
        kv_dtype=kv_dtype,
        layout=draw(st.sampled_from((None, *fitting))),
        block_size=block_size,
        causal=causal,
        sliding_window=draw(st.sampled_from((None, None, 1, 2, 15, 16, 33, 130, 1000))),
        logits_soft_cap=draw(st.sampled_from((None, None, 0.0, 1.5, 30.0))),
        scale=draw(st.sampled_from((None, None, 0.3, -0.1, 0.0))),
        sinks=draw(st.booleans()),
        alibi=draw(st.booleans()),
        k_scale=draw(st.sampled_from(SCALE_KINDS)),
        v_scale=draw(st.sampled_from(SCALE_KINDS)),
        before=draw(st.sampled_from((0, 0, 2))),
        after=draw(st.sampled_from((0, 1, 9))),
        seed=draw(st.integers(0, 2**16)),
    )


@st.composite
def _lengths(draw: DrawFn, causal: bool) -> tuple[int, int]:
    """(query tokens, keys) of one request: fresh, extend, or (if not causal) anything."""
    queries = draw(query_lengths)
    cached = draw(cached_lengths)
    if not causal and draw(st.booleans()):
        return queries, cached
    return queries, queries + cached
