"""Sizes: head sizes and ratios, lengths around tile edges, ragged and empty batches."""

from __future__ import annotations

import pytest

from tests.ops.cases import Case, make
from tests.ops.layouts import LAYOUTS
from tests.ops.oracle import check
from tests.ops.strategies import DTYPES, EDGES, HEAD_RATIOS

Lengths = tuple[tuple[int, int], ...]
SPLIT = tuple(name for name in LAYOUTS if name.startswith(("ROCM", "AITER")))
RATIOS = (*HEAD_RATIOS, (5, 1), (7, 7), (40, 2), (2, 1))
LENGTHS: dict[str, Lengths] = {
    "edges": tuple((n, n) for n in (*range(20), *EDGES[8:])),
    "longer edges": tuple((n, n) for n in (127, 128, 129, 255, 256, 257, 513)),
    "cached": tuple((n, cached + n) for n in (1, 2, 17, 65) for cached in (1, 15, 17, 256, 700)),
    "any number of keys": tuple((n, keys) for n in (1, 5, 130) for keys in (0, 1, 7, 16, 255, 300)),
    "many requests": tuple((n % 5, n % 5 + n % 23) for n in range(600)),
}


@pytest.mark.parametrize("head_size", [*range(8, 73, 8), 96, 120, 128, 136, 192, 248, 256])
def test_every_head_size(head_size: int, isa: str) -> None:
    """Each head size meets one of the ratios of heads."""
    n = head_size // 8
    heads = RATIOS[n % len(RATIOS)]
    check(make(Case(((21, 70), (33, 33), (1, 40)), *heads, head_size, DTYPES[n % 3])))


@pytest.mark.parametrize(
    ("head_size", "value_size"),
    [(192, 128), (128, 192), (64, 128), (128, 64), (8, 256), (256, 8), (72, 40)],
)
@pytest.mark.parametrize("layout", [None, "one [B,N,H,Dk+Dv]", "HND, two tensors", *SPLIT])
def test_values_of_another_size(
    layout: str | None, head_size: int, value_size: int, splits: bool, isa: str
) -> None:
    dtype = DTYPES[(head_size + value_size) // 8 % 3]
    case = Case(((21, 70), (33, 33), (1, 200)), 6, 2, head_size, dtype, layout=layout)
    case = case.but(value_size=value_size)
    check(make(case.but(sliding_window=50, sinks=True)))
    check(make(case.but(causal=False, logits_soft_cap=20.0, after=3)))


@pytest.mark.parametrize("head_size", [64, 72])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_lengths(lengths: Lengths, causal: bool, head_size: int, isa: str) -> None:
    check(make(Case(lengths=lengths, causal=causal, head_size=head_size, num_heads=3)))
