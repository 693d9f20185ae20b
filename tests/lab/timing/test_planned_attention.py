"""The planner's split of rows and keys, by the timing model: close to the best split, and within a
bar for an extend over a long context."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest

from hk_backend.kernels import catalogue
from hk_backend.kernels.costs import costs
from hk_backend.lab.bench.attention.explain import AttentionExplanation, explain
from hk_backend.lab.timing.workloads.attention_prefill import Shape
from tests.seed import draw

UNITS = 256
LOSS = 1.2
"""Largest ratio of the choice's time to the best way's, for any shape."""


def shape(heads: str, requests: int, tokens: int, cached: int) -> Shape:
    query_heads, kv_heads = map(int, heads.split("/"))
    keys = [tokens + cached] * requests
    return Shape([tokens] * requests, keys, query_heads, kv_heads)


EXTEND = shape("8/1", 1, 200, 8000)
HEAD_SIZES = (64, 128, 256)
SHAPES = [
    EXTEND,
    shape("8/1", 1, 64, 16000),
    shape("32/8", 1, 200, 8000),
    shape("32/8", 1, 64, 300),
    shape("9/3", 1, 40, 600),
    shape("32/8", 2, 512, 0),
    shape("32/8", 1, 1000, 0),
    shape("32/8", 8, 128, 2000),
    shape("64/8", 1, 4096, 0),
    shape("64/8", 16, 1024, 0),
]
"""Shapes, of which the commit draws one for each head size."""


@functools.cache
def explained(of: str, head_size: int) -> AttentionExplanation:
    found = BY_NAME[of]
    return explain(catalogue("gfx950"), found, head_size, UNITS, clocked=99, say=lambda _: None)


def name(of: Shape) -> str:
    return f"{of.heads}/{of.kv_heads} {len(of.queries)}x{of.queries[0]} of {of.keys[0]}"


BY_NAME = {name(each): each for each in SHAPES}


def times(of: Shape, head_size: int) -> list[float]:
    """Times of the candidates by the timing model, the planner's choice first."""
    return [rival.clocked or math.nan for rival in explained(name(of), head_size).rivals]


def cases() -> Iterator[Any]:
    """Cases of every shape with every head size; those that the commit does not draw are slow."""
    drawn = draw("shapes").sample(SHAPES, len(HEAD_SIZES))
    for head_size, of in itertools.product(HEAD_SIZES, SHAPES):
        run = of == drawn[HEAD_SIZES.index(head_size)]
        marks = [] if run else [pytest.mark.slow]
        yield pytest.param(of, head_size, marks=marks, id=f"{name(of)}-{head_size}")


@pytest.mark.parametrize(("of", "head_size"), list(cases()))
def test_the_choice_is_near_the_best_way(of: Shape, head_size: int) -> None:
    chosen, *_ = found = times(of, head_size)
    assert chosen <= LOSS * min(found)


def test_an_extend_of_200_tokens_over_8000() -> None:
    """8 query heads share a KV head, d=128: the bar is 20 us, without the cost of the launches."""
    chosen = times(EXTEND, 128)[0]
    launches = 2 if explained(name(EXTEND), 128).rivals[0].facts["parts"] != 1 else 1
    assert chosen - launches * costs("gfx950").launch_microseconds <= 20
