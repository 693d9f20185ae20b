"""The workgroups of a launch, as the launcher computes them from a kernel's packed argument."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hk_backend._hip import GridFunction
from hk_backend.kernels import arches, catalogue
from hk_backend.kernels.catalogue import CODE_OBJECTS, MEASURING

SHIPPED = [
    entry
    for folder in (CODE_OBJECTS, MEASURING)
    for arch in arches(folder)
    for entry in catalogue(arch, folder).kernels
]
ENTRIES = {entry.grid: entry for entry in SHIPPED}
"""A kernel for each kind of grid."""
ROWS, COLUMNS = 128, 64
"""Rows and columns of the tile in these tests."""
TOKENS = {"num_heads": 32, "num_kv_heads": 8, "group": 4, "parts": 3}


def workgroups(grid: str, **numbers: int) -> tuple[int, int, int]:
    """The workgroups of a launch with a tile of `ROWS` x `COLUMNS`; all other fields are zero."""
    entry = ENTRIES[grid]
    entry = replace(entry, tile=replace(entry.tile, rows=ROWS, columns=COLUMNS))
    fields = {field.name: 0 for field in entry.arguments.fields}
    return entry.workgroups(entry.arguments.pack({**fields, **numbers}))


@pytest.mark.parametrize(
    ("grid", "numbers", "expected"),
    [
        ("attention_prefill", {"num_tokens": 129, "num_requests": 3}, (32, 4, 1)),
        ("attention_prefill_grouped", {"num_tokens": 129, "num_requests": 3}, (8, 7, 1)),
        ("attention_part", {"num_tokens": 128, "num_requests": 1}, (3, 32, 1)),
        ("attention_part_grouped", {"num_tokens": 129, "num_requests": 1}, (3, 8, 5)),
        ("attention_prefill", {"num_tokens": 0, "num_requests": 1}, (32, 1, 1)),
        ("attention_prefill", {"num_tokens": 0, "num_requests": 0}, (32, 1, 1)),
        ("attention_prefill_grouped", {"num_tokens": 2**30, "num_requests": 1}, (8, 2**25, 1)),
    ],
)
def test_attention(grid: str, numbers: dict[str, int], expected: tuple[int, int, int]) -> None:
    assert workgroups(grid, **TOKENS, **numbers) == expected


@pytest.mark.parametrize(
    ("grid", "numbers", "expected"),
    [
        ("attention_merge", {"num_tokens": 129, "num_heads": 5}, (2, 5, 1)),
        ("gemm", {"m": 128, "n": 65, "splits": 7}, (14, 1, 1)),
        ("gemm", {"m": 129, "n": 64, "splits": 1}, (2, 1, 1)),
        ("quantize_fp8_rows", {"m": 3, "k": 65}, (3, 1, 1)),
        ("quantize_fp8_tiles", {"m": 3, "k": 65}, (3, 2, 1)),
        ("quantize_mx", {"m": 129, "k": 513, "packed": 1}, (2, 9, 1)),
        ("quantize_mx", {"m": 129, "k": 513, "packed": 0}, (9, 2, 1)),
        ("measure", {"workgroups": 9}, (9, 1, 1)),
        ("gemv", {"n": 48}, (3, 1, 1)),
        ("decode", {"batch": 3, "kv_heads": 5, "splits": 7}, (105, 1, 1)),
        ("cast", {"count": 8192}, (2, 1, 1)),
        ("rotary", {"rows": 96}, (3, 1, 1)),
        ("norm", {"rows": 12}, (3, 1, 1)),
        ("row", {"rows": 5, "channels": 64}, (5, 1, 1)),
        ("add", {"count": 3072}, (3, 1, 1)),
    ],
)
def test_value(grid: str, numbers: dict[str, int], expected: tuple[int, int, int]) -> None:
    assert workgroups(grid, **numbers) == expected


def test_what_is_no_grid_is_refused() -> None:
    with pytest.raises(ValueError, match="grid: -1 workgroups are not valid"):
        workgroups("measure", workgroups=-1)
    with pytest.raises(ValueError, match=f"grid: {2**32} workgroups are not valid"):
        workgroups("decode", batch=2**16, kv_heads=2**16, splits=1)
    with pytest.raises(ValueError, match="an argument of 47 bytes is not valid: expected 48"):
        GridFunction("measure", (1, 1, 1)).of(bytes(47))
    with pytest.raises(ValueError, match="no function 'none'"):
        GridFunction("none", (1, 1, 1))
    for tile in ((0, 1, 1), (1, 0, 1)):
        with pytest.raises(ValueError, match="an empty tile"):
            GridFunction("measure", tile)


def test_every_kernel_has_the_struct_of_its_grid() -> None:
    for entry in SHIPPED:
        assert len(entry.workgroups(bytes(entry.arguments.size))) == 3, entry.name
