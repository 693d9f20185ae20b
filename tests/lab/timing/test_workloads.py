"""The model's launches state rightly how much work each workgroup has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from hk_backend.kernels.catalogue import catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.masks import NO_MASK, WINDOW
from hk_backend.lab.timing import model
from hk_backend.lab.timing.launch import trace
from hk_backend.lab.timing.workloads import quantize_fp8, quantize_mx
from hk_backend.lab.timing.workloads.attention_prefill import Shape, launch
from hk_backend.lab.timing.workloads.attention_prefill.workgroups import workgroups


def attention_kernel(keys: str, stored: str = "bf16", mask: str = NO_MASK) -> KernelEntry:
    facts = {"dtype": "bf16", "head_size": 64, "keys": keys, "stored": stored, "mask": mask}
    entry = catalogue("gfx950").select("attention_prefill", **facts)
    assert isinstance(entry, KernelEntry)
    return entry


def executed(entry: KernelEntry, shape: Shape) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Numbers for each workgroup of a launch: the tiles that are counted, and the executed
    instructions."""
    prepared = launch(entry, shape)
    work = workgroups(entry, shape).tiles
    assert len(work) == np.prod(prepared.grid)
    traced = prepared.machine.trace(
        prepared.kernel,
        list(prepared.grid),
        [prepared.block],
        prepared.arguments,
        workgroups=range(len(work)),
        dynamic_lds=prepared.dynamic_lds,
    )
    return work, np.array(traced.steps, float)


SHAPE = Shape([512, 256, 768], [512, 1088, 1024], 2, 1)


@pytest.mark.parametrize(
    ("keys", "stored"),
    [
        *((keys, "bf16") for keys in ("packed", "paged", "split", "tokens", "any_pages")),
        ("paged", "e4m3"),
        ("split", "e4m3"),
    ],
)
@pytest.mark.parametrize(
    ("causal", "windows"), [(False, (0,)), (True, (0,)), (True, (320, 448, 576))]
)
def test_workgroups_with_as_much_to_do_execute_as_much(
    keys: str, stored: str, causal: bool, windows: tuple[int, ...]
) -> None:
    windowed = windows != (0,)
    mask = WINDOW if windowed else NO_MASK
    entry = attention_kernel(keys, stored, mask)
    longest = {}
    for window in windows:
        work, steps = executed(entry, replace(SHAPE, causal=causal, window=window))
        assert steps[work == 0].max() < 0.2 * steps[work > 0].min()
        amounts = np.unique(work[work > 0])
        for amount in amounts:
            equal = steps[work == amount]
            assert np.ptp(equal) < 0.05 * equal.max()
        # a tile that windows begin in costs more: all of those that are compared have as many;
        # a lone tile goes through no loop
        for amount in amounts[-1:] if windowed else amounts[amounts > 1]:
            longest[amount] = steps[work == amount].max()
    least, middle, *_, most = sorted(longest)
    # beside what every workgroup does, once for each tile
    tile = (longest[most] - longest[least]) / (most - least)
    expected = longest[most] - (most - middle) * tile
    assert longest[middle] == pytest.approx(expected, rel=0.05)


def test_useful_work_of_a_causal_shape() -> None:
    square = Shape([4], [4], 2, 1)
    assert square.flops(64) == 4 * 2 * 64 * (4 * 4 / 2)
    assert Shape([2], [6], 2, 1).flops(64) == 4 * 2 * 64 * (2 * 4 + 2 * 2 / 2)
    assert square.bytes(64) == 2 * 64 * (2 * 2 * 4 + 2 * 1 * 4)
    assert square.bytes(64, stored=1) == 64 * (2 * 2 * 2 * 4 + 2 * 1 * 4)


@pytest.mark.parametrize(
    ("queries", "keys", "window"), [(4, 4, 2), (4, 9, 3), (4, 6, 4), (3, 5, 50), (1, 9, 1)]
)
def test_useful_work_within_a_window(queries: int, keys: int, window: int) -> None:
    """The keys that the rows see are counted one by one; those on the diagonal count half."""
    seen = sum(min(window, 1 + row) for row in range(keys - queries, keys))
    half = sum(0.5 for row in range(keys - queries, keys) if row < window)
    shape = Shape([queries], [keys], 2, 1, window=window)
    assert shape.flops(64) == 4 * 2 * 64 * (seen - half)
    read = len({key for row in range(keys - queries, keys) for key in range(row + 1)[-window:]})
    assert shape.bytes(64) == 2 * 64 * (2 * 2 * queries + 2 * 1 * read)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (([4], [4, 5], 2, 1), "queries: 1 lengths, keys: 2"),
        (([4], [3], 2, 1), "as many keys or more"),
        (([4], [4], 3, 2), "heads 3/2"),
        (([4], [4], 2, 1, True, -1), "block_size -1"),
    ],
)
def test_impossible_shapes_are_refused(shape: tuple, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match=message):
        Shape(*shape)


@pytest.mark.parametrize("scale", ["token", "block", "given"])
def test_rows_to_quantise_are_read_and_written_once(scale: str) -> None:
    """Rows end within a tile: the workgroups at their end have less to do."""
    entry = catalogue("gfx950").select("quantize_fp8", x="bf16", scale=scale)
    assert isinstance(entry, KernelEntry)
    shape = quantize_fp8.Shape(300, 3000)
    launch = quantize_fp8.launch(entry, shape)
    assert launch.work.sum() == 300 * 3000
    assert len(launch.work) == np.prod(launch.grid)
    scales = {"token": 300, "block": 300 * 24, "given": 1}[scale]
    assert launch.bytes == 300 * 3000 * 3 + 4 * scales
    modelled = model.time(trace(launch))
    least = launch.bytes / modelled.parameters["hbm"] / 1e6
    assert modelled.microseconds - modelled.parameters["launch"] > least


@pytest.mark.parametrize("format", quantize_mx.BITS)
def test_codes_and_scales_to_multiply_are_padded(format: str) -> None:
    entry = catalogue("gfx950").select("quantize_mx", x="bf16", format=format)
    assert isinstance(entry, KernelEntry)
    shape = quantize_mx.Shape(300, 3008, rotation=64)
    launch = quantize_mx.launch(entry, shape)
    assert launch.work.sum() == 300 * 3008
    assert len(launch.work) == np.prod(launch.grid)
    padded = 320 * 3072
    assert launch.bytes == 2 * 300 * 3008 + padded * quantize_mx.BITS[format] // 8 + padded // 32
    modelled = model.time(trace(launch))
    least = launch.bytes / modelled.parameters["hbm"] / 1e6
    assert modelled.microseconds - modelled.parameters["launch"] > least


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((0, 64), "m = 0"),
        ((1, 80), "k=80; valid: multiples of 32"),
        ((1, 96, 64), "k=96; valid: multiples of 64"),
        ((1, 96, 96), "rotation=96; valid: 0, 32, 64, 128"),
    ],
)
def test_impossible_rows_for_mx_are_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quantize_mx.Shape(*shape)
