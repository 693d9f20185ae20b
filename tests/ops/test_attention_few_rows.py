"""Few rows of a request, which leave keys and values where they lie, on every instruction set."""

from __future__ import annotations

import pytest
import torch

from tests.ops.cases import Case, make
from tests.ops.oracle import check, expected

LAYOUTS = (
    None,
    "NHD, two tensors",
    "one [B,H,N,2D]",
    "CPU_ATTN: K [D,N], V [N,D], one storage",
    "CPU_ATTN for AMX: K [N/16,D/2,16,2], V [D/16,N/2,16,2], one storage",
)
AROUND_TILES = (1, 2, 15, 16, 17, 31, 33, 48, 127, 128, 129, 160, 255, 257, 400)
"""Keys at the ends of runs of 16, of AMX's units of 32, and of tiles of 128."""
BF16 = torch.bfloat16


def batch(tokens: int) -> tuple[tuple[int, int], ...]:
    """Requests of up to `tokens` new tokens and of lengths around the tiles' ends."""
    return tuple((min(tokens, keys), keys) for keys in AROUND_TILES)


@pytest.mark.parametrize(("tokens", "group"), [(1, 1), (1, 3), (4, 1), (5, 3), (1, 16), (2, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, BF16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows(layout: str | None, dtype: torch.dtype, tokens: int, group: int, isa: str) -> None:
    case = Case(batch(tokens), 2 * group, 2, dtype=dtype, layout=layout, block_size=32)
    check(make(case))


@pytest.mark.parametrize("head_size", [16, 48, 72, 80, 128, 256])
@pytest.mark.parametrize("block_size", [16, 48, 64])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_head_sizes_and_pages(
    layout: str | None, block_size: int, head_size: int, isa: str
) -> None:
    if layout is not None and "AMX" in layout and head_size % 16:
        head_size = 96
    case = Case(batch(3), 6, 2, head_size, BF16, layout=layout, block_size=block_size)
    check(make(case))


@pytest.mark.parametrize(
    "features",
    [
        {"sliding_window": 1},
        {"sliding_window": 2},
        {"sliding_window": 37, "sinks": True},
        {"causal": False},
        {"causal": False, "sliding_window": 3},
        {"logits_soft_cap": 20.0},
        {"alibi": True},
        {"k_scale": "per head", "v_scale": "one"},
        {"scale": -0.3},
        {"scale": 0.0, "sinks": True},
    ],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_features(layout: str | None, features: dict[str, object], isa: str) -> None:
    case = Case(batch(4), 6, 2, dtype=BF16, layout=layout, block_size=32)
    check(make(case.but(**features)))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_a_value_that_a_row_does_not_see_does_not_matter(layout: str, bad: float, isa: str) -> None:
    """The last token's value is hidden from the rows of the three tokens before it."""
    case = Case(((4, 100), (4, 128), (4, 33)), 6, 2, dtype=BF16, layout=layout, block_size=32)
    call = make(case)
    cache = call["paged_kv"]
    for request, (_, keys) in enumerate(case.lengths):
        block, token = int(call["block_table"][request, (keys - 1) // 32]), (keys - 1) % 32
        if "AMX" in layout:
            cache.value.tensor[block, :, :, token // 2, :, token % 2] = bad
        elif layout.startswith("NHD"):
            cache.value.tensor[block, token] = bad
        else:
            cache.value.tensor[block, :, token] = bad
    want = expected(call).out
    assert want[0:3].isfinite().all()
    assert not want[3].isfinite().any()
    check(call)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_split_keys(layout: str | None, tiny_splits: None, isa: str) -> None:
    case = Case(((3, 300), (1, 40), (1, 131), (2, 517)), 8, 2, dtype=BF16, layout=layout)
    check(make(case.but(block_size=32)))
