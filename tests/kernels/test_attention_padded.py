"""Head sizes without a kernel of their own, on kernels that pad them to 128 or 256 channels.

The other tests of tests/kernels take a few head sizes of these kernels. The tests here take all,
and check the memory beside a row.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from hk_backend.kernels import KernelEntry
from tests.kernels.attention_launch import PADDED, Launch, kernels, layout_for, logical, passes
from tests.ops.cases import Case, make
from tests.seed import fixed

SIZES = {128: range(8, 129, 8), 256: range(136, 257, 8)}
"""Sizes of the larger of keys and values, by the channels that the kernel computes."""
BESIDE = 24
"""Elements after each head's row: a multiple of 16 bytes, and of no tile."""


def padded(**axes: Any) -> Any:
    return kernels(padded=(True,), **axes)


def case_of(entry: KernelEntry, sizes: tuple[int, int], case: Case) -> Case:
    """The case with keys and values of these sizes."""
    fitted, (head_size, value_size) = Launch.fitting(entry, case), sizes
    layout = layout_for(case, str(entry.facts["keys"]), head_size == value_size)
    return fitted.but(head_size=head_size, value_size=value_size, layout=layout)


@padded(turn=range(5))
def test_every_head_size(entry: KernelEntry, turn: int) -> None:
    """Each kernel takes at least a fifth of the sizes: for keys and values alike, and beside any
    other."""
    random, sizes = fixed(f"sizes {entry.name}"), list(SIZES[int(entry.facts["head_size"])])
    own = random.sample(sizes, len(sizes))[turn::5]
    for size in own:
        other = random.choice((size, size, random.randrange(8, size + 1, 8)))
        both = random.choice(((size, other), (other, size)))
        case = Case(((70, 133), (1, 64), (0, 5), (3, 0)), 4, 2, block_size=32)
        passes(Launch.of(entry, make(case_of(entry, both, case))))


@padded(keys=("packed",))
def test_what_lies_beside_a_row(entry: KernelEntry) -> None:
    """NaN lies between heads: it never reaches a score, and is not written over."""
    for sizes in PADDED[int(entry.facts["head_size"])]:
        call = make(case_of(entry, sizes, Case(((40, 70), (5, 5)), 4, 2)))
        for name in ("query", "key", "value"):
            call[name] = beside_nan(call[name])
        passes(Launch.of(entry, call))


def beside_nan(rows: torch.Tensor) -> torch.Tensor:
    wide = torch.full((*rows.shape[:2], rows.shape[2] + BESIDE), math.nan, dtype=rows.dtype)
    wide[..., : rows.shape[2]] = rows
    return wide[..., : rows.shape[2]]


@padded(keys=("tokens",))
def test_a_score_of_minus_infinity_has_no_weight(entry: KernelEntry) -> None:
    """Past a row's end, lanes fetch its first channels once more: infinity times zero would be
    NaN."""
    sizes = PADDED[int(entry.facts["head_size"])][0]
    call = make(case_of(entry, sizes, Case(((40, 70),), 2, 1, causal=False)))
    call["query"][:, :, 0] = call["query"][:, :, 0].abs() + 1
    cache = call["paged_kv"]
    blocks = call["block_table"][0, :70:7].long()
    logical(cache, cache.key)[blocks, 0, 0, 0] = -math.inf
    passes(Launch.of(entry, call))


@pytest.mark.parametrize("size", [128, 256])
def test_the_sizes_that_other_tests_take_are_some_of_these(size: int) -> None:
    assert {max(sizes) for sizes in PADDED[size]} <= set(SIZES[size])
