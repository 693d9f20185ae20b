"""Operations on register tiles, for each element type and arch, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.tiles import layouts
from tests.tiles.launch import GFX942, GFX950, arches, launch
from tests.tiles.numbers import DTYPES, NAN, nans, randn, to_bits, to_float64, unique_elements

dtypes = pytest.mark.parametrize("dtype", DTYPES)


# --- loads from global memory --------------------------------------------------------------------
@arches
@pytest.mark.parametrize(("dtype", "rows", "depth"), [("bf16", 64, 64), ("f16", 32, 128)])
@pytest.mark.parametrize("rows_there", [64, 33, 32, 31, 1, 0])
def test_load_operand(arch: str, dtype: str, rows: int, depth: int, rows_there: int) -> None:
    """Rows past the view's end are zeros; memory past it is not touched."""
    rows_there, stride = min(rows, rows_there), depth + 8
    memory = nans(max(rows_there, 1), stride)
    memory[:rows_there, :depth] = unique_elements(rows_there, depth) + 1
    operand = layouts.OPERANDS[arch]
    steps = depth // operand.depth
    out = np.empty((64, rows // 32, steps, operand.elements), np.uint16)
    launch(
        f"load_operand_{dtype}",
        memory,
        out,
        numbers=[2 * stride, 2 * stride * rows_there],
        arch=arch,
    )
    whole = np.zeros((rows, depth), np.uint16)
    whole[:rows_there] = memory[:rows_there, :depth]
    for block in range(rows // 32):
        for step in range(steps):
            wanted = whole[32 * block + operand.rows(), operand.depth * step + operand.depths()]
            np.testing.assert_array_equal(out[:, block, step], wanted)


# --- matrix products ---------------------------------------------------------------------------
def multiply(
    arch: str, dtype: str, a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32]
) -> NDArray[np.float32]:
    """c + a b^T of [32, depth] rows; c must come back as it was."""
    held = layouts.to_lanes(c)
    before, out = held.copy(), np.empty((64, 16), np.float32)
    launch(f"mma_{dtype}", to_bits(a, dtype), to_bits(b, dtype), held, out, arch=arch)
    np.testing.assert_array_equal(held, before)
    return layouts.from_lanes(out)


@arches
@dtypes
def test_mma_is_exact_on_integers(arch: str, dtype: str) -> None:
    """No row, column or depth is like another: a wrong lane or element would show."""
    depth = layouts.OPERANDS[arch].depth
    rng = np.random.default_rng(1)
    a, b, c = (
        rng.integers(-100, 100, shape).astype(np.float32)
        for shape in ((32, depth),) * 2 + ((32, 32),)
    )
    np.testing.assert_array_equal(multiply(arch, dtype, a, b, c), c + a @ b.T)


@arches
@dtypes
def test_mma_rounds_like_float32(arch: str, dtype: str) -> None:
    depth = layouts.OPERANDS[arch].depth
    a, b, c = randn(32, depth), randn(32, depth, seed=1), randn(32, 32, seed=2)
    a, b = (to_float64(to_bits(x, dtype), dtype).astype(np.float32) for x in (a, b))
    exact = c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64).T
    magnitude = np.abs(c) + np.abs(a.astype(np.float64)) @ np.abs(b.T)
    error = np.abs(multiply(arch, dtype, a, b, c) - exact)
    assert (error <= (depth + 1) * 2.0**-23 * magnitude).all()


# --- maps and reductions -------------------------------------------------------------------------
@arches
def test_map_scale_fill(arch: str) -> None:
    block, factor = randn(64, 16), randn(64, seed=1)
    out = np.empty((4, 64, 16), np.float32)
    launch("map_all", block, factor, out, arch=arch)
    mapped, scaled, filled, source = out
    exact = block.astype(np.float64) ** 2 + 1  # by a fused or by two roundings
    assert (np.abs(mapped - exact) <= 2 * 2.0**-24 * exact).all()
    np.testing.assert_array_equal(scaled, block * factor[:, None])
    np.testing.assert_array_equal(filled.view(np.uint32), 0x80000000)
    np.testing.assert_array_equal(source, block)


def reduce(
    arch: str, block: NDArray[np.float32], start: NDArray[np.float32], bound: float
) -> NDArray[np.float32]:
    out = np.empty((64, 4), np.float32)
    bits = int(np.float32(bound).view(np.int32))
    launch("reduce_all", block, start, out, numbers=[bits], arch=arch)
    return np.ascontiguousarray(out.T)


@arches
@pytest.mark.parametrize("case", ["rising", "falling", "random", "start above", "infinite", "nan"])
def test_reductions(arch: str, case: str) -> None:
    block, start = randn(64, 16), randn(64, seed=1)
    if case == "rising":
        block = np.arange(64 * 16, dtype=np.float32).reshape(64, 16)
    elif case == "falling":
        block = -np.arange(64 * 16, dtype=np.float32).reshape(64, 16)
    elif case == "start above":
        start[:] = 1e30
    elif case == "infinite":
        block[::3], start[1::2] = -np.inf, -np.inf
        block[5, 7] = np.inf
    elif case == "nan":
        block[3, 4], block[40, 0], start[60] = np.nan, np.nan, np.nan
    top, total, largest, above = reduce(arch, block, start, 3.0)
    wanted = np.maximum(block.max(axis=1), start)  # of numpy: NaN wins
    np.testing.assert_array_equal(top, wanted)
    halves = wanted.reshape(2, 32)
    np.testing.assert_array_equal(total.reshape(2, 32), np.tile(halves[0] + halves[1], (2, 1)))
    np.testing.assert_array_equal(largest.reshape(2, 32), np.tile(np.maximum(*halves), (2, 1)))
    assert (above == float((start > 3.0).any())).all()


@pytest.mark.parametrize("lane", [0, 31, 32, 63, None])
def test_any_sees_every_lane(lane: int | None) -> None:
    start = np.zeros(64, np.float32)
    if lane is not None:
        start[lane] = 2
    *_, above = reduce(GFX950, np.zeros((64, 16), np.float32), start, 1.0)
    assert (above == float(lane is not None)).all()


# --- conversions ---------------------------------------------------------------------------------
def around_every_rounding(dtype: str) -> NDArray[np.float32]:
    """For every 16-bit number of the type: itself, the middle to the next, and their neighbours."""
    bits = np.arange(2**16, dtype=np.uint16)
    below = to_float64(bits, dtype)
    above = to_float64(bits + np.uint16(1), dtype)
    below, above = below[np.isfinite(below)], above[np.isfinite(below)]
    with np.errstate(over="ignore", invalid="ignore"):
        middle = ((below + above) / 2).astype(np.float32)
        exact = below.astype(np.float32)
        near = [np.nextafter(x, np.float32(s)) for x in (exact, middle) for s in (-np.inf, np.inf)]
        values = np.concatenate([exact, middle, *near])
    return np.asarray(values[~np.isnan(values)], np.float32)


@arches
@dtypes
def test_convert_rounds_to_nearest_even(arch: str, dtype: str) -> None:
    """Exhaustive over the 16-bit numbers, overflow and subnormals included."""
    limits = [
        np.inf,
        -np.inf,
        65504,
        65519.996,
        65520,
        65536,
        3.3895e38,
        3.4028235e38,
        1e-45,
        -1e-45,
    ]
    values = np.concatenate(
        [around_every_rounding(dtype), np.array(limits, np.float32), [np.nan, -np.nan]]
    )
    each, lanes = 32, 64
    groups = -(-len(values) // (2 * each * lanes))
    padded = np.zeros(groups * 2 * each * lanes, np.float32)
    padded[: len(values)] = values
    out = np.empty(len(padded), np.uint16)
    launch(f"convert_{dtype}", padded, out, numbers=[each], grid=groups, arch=arch)
    found, wanted = to_float64(out, dtype), to_float64(to_bits(padded, dtype), dtype)
    np.testing.assert_array_equal(found, wanted)  # NaN equals NaN
    number = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(wanted[number]))


@arches
@dtypes
def test_convert_writes_one_word_of_the_fragment(arch: str, dtype: str) -> None:
    words = layouts.OPERANDS[arch].elements // 2
    pairs = randn(64, 2)
    before = np.arange(64 * words, dtype=np.uint32).reshape(64, words) + 0x77770000
    out = np.empty((words, 64, words), np.uint32)
    launch(f"convert_into_{dtype}", pairs, before, out, arch=arch)
    for word in range(words):
        wanted = before.copy()
        wanted[:, word] = to_bits(pairs, dtype).view(np.uint32)[:, 0]
        np.testing.assert_array_equal(out[word], wanted)


@pytest.mark.parametrize(
    ("arch", "fp8"), [(GFX942, torch.float8_e4m3fnuz), (GFX950, torch.float8_e4m3fn)]
)
def test_fp8_format(arch: str, fp8: torch.dtype) -> None:
    """The arch's largest FP8 number is the type's, and its instructions convert it to that."""
    out = np.empty((64, 2), np.uint32)
    launch("fp8_limits", out, arch=arch)
    largest = torch.finfo(fp8).max
    assert (out[:, 0].view(np.float32) == largest).all()
    wanted = torch.tensor(largest).to(fp8).view(torch.uint8).item()
    assert (out[:, 1] & 0xFF == wanted).all()


# --- masks ---------------------------------------------------------------------------------------
@arches
@dtypes
@pytest.mark.parametrize("depth", [*range(-2, 18), 1000, -1000])
def test_keep_below(arch: str, dtype: str, depth: int) -> None:
    """What is not kept was NaN, and is zero."""
    operand = layouts.OPERANDS[arch]
    kept = operand.depths() < depth
    source = np.where(kept, unique_elements(64, operand.elements) + 1, np.uint16(NAN)).astype(
        np.uint16
    )
    before, out = source.copy(), np.empty_like(source)
    launch(f"keep_{dtype}", source, out, numbers=[depth], arch=arch)
    np.testing.assert_array_equal(out, np.where(kept, before, 0))
    np.testing.assert_array_equal(source, before)
