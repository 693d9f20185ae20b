"""Launches by operator, and the shapes that every kernel of the catalogue is modelled on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hk_backend.kernels import attention_plan
from hk_backend.kernels.catalogue import Family
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.gemm_choice import planned
from hk_backend.kernels.masks import PART, WINDOW_PART, WINDOWED
from hk_backend.lab.timing.launch import Launch
from hk_backend.lab.timing.workloads import attention, gemm, merge, quantize

Shape = attention.Shape | gemm.Shape | merge.Shape | quantize.Shape

LAUNCHES: Mapping[str, Callable[[KernelEntry, Any], Launch]] = {
    "attention_prefill": attention.launch,
    "attention_merge": merge.launch,
    "gemm": gemm.launch,
    "quantize_fp8": quantize.launch,
}
"""Functions that prepare a launch from a kernel and a shape, by operator."""


def serving(alternatives: Family, shape: Shape, compute_units: int) -> tuple[KernelEntry, Launch]:
    """The kernel that serves the shape, and its launch.

    The planner chooses among `alternatives`, the kernels that compute the same.
    """
    if isinstance(shape, gemm.Shape):
        plan = planned(alternatives, shape.m, shape.n, shape.k, compute_units)
        return plan.entry, gemm.launch(plan.entry, replace(shape, splits=plan.splits))
    entry = alternatives[0]
    if isinstance(shape, attention.Shape) and len(alternatives) > 1:
        sizes = {each.tile.rows: each for each in alternatives}
        of = attention.launch_sizes(entry, shape)
        entry = sizes[attention_plan.choose(of, compute_units, sizes, parts=False).rows]
    return entry, LAUNCHES[entry.operator](entry, shape)


def batch(size: int, tokens: int, heads: int, kv_heads: int, causal: bool) -> attention.Shape:
    """A batch of `size` requests with `tokens` new tokens each and no cached tokens."""
    return attention.Shape([tokens] * size, [tokens] * size, heads, kv_heads, causal)


def square(size: int) -> gemm.Shape:
    """The GEMM with M = N = K = `size`."""
    return gemm.Shape(size, size, size)


SHAPES: Mapping[str, Mapping[str, Shape]] = {
    "attention_prefill": {
        "b16 64/8 n4096 causal": batch(16, 4096, 64, 8, True),
        "b16 64/8 n1024 causal": batch(16, 1024, 64, 8, True),
        "b16 64/8 n4096 full": batch(16, 4096, 64, 8, False),
    },
    "attention_merge": {"8 heads n200, 16 parts": merge.Shape(200, 8, 16)},
    "gemm": {"8192x8192x8192": square(8192), "4096x4096x4096": square(4096)},
    "quantize_fp8": {
        "16384x8192": quantize.Shape(16384, 8192),
        "16x8192": quantize.Shape(16, 8192),
    },
}
"""Shapes that the catalogue has modelled figures for, by operator and name (`shapes_of`)."""

IN_WINDOWS: Mapping[str, Shape] = {
    "b16 64/8 n4096 causal": batch(16, 4096, 64, 8, True),
    "b16 64/8 n4096 causal window 1024": replace(batch(16, 4096, 64, 8, True), window=1024),
}
"""Shapes of attention kernels with windows and sinks that the catalogue has figures for."""

EXTEND = {
    "8/1 n200 cached 8000 causal, 16 parts": attention.Shape(
        [200], [8200], heads=8, kv_heads=1, parts=16
    ),
}
"""Shapes of attention kernels whose workgroups each read a part of the keys."""

EXTEND_IN_WINDOW = {
    "8/1 n200 cached 8000 causal window 4096, 8 parts": attention.Shape(
        [200], [8200], heads=8, kv_heads=1, window=4096, parts=8
    ),
}
"""Shapes of attention kernels for parts of the keys, with windows."""

FEW_ROWS: Mapping[int, Mapping[str, Shape]] = {
    rows: {f"{m}x28672x4096": gemm.Shape(m, 28672, 4096)}
    for rows, m in ((128, 512), (64, 128), (32, 16))
}
"""Shapes of GEMM kernels with small tiles, by rows of the tile: gate_up of Llama 3 8B.

M is a number of tokens that such a tile serves."""
SMALL_TILE = 128 * 128


def shapes_of(entry: KernelEntry) -> Mapping[str, Shape]:
    """The shapes, by name, that the catalogue has modelled figures of a kernel for.

    The first shape represents the kernel in places that show only one.
    """
    if entry.operator == "gemm" and entry.tile.rows * entry.tile.columns <= SMALL_TILE:
        return FEW_ROWS[entry.tile.rows]
    if entry.facts.get("mask") == PART:
        return EXTEND
    if entry.facts.get("mask") == WINDOW_PART:
        return EXTEND_IN_WINDOW
    if entry.facts.get("mask") in WINDOWED:
        return IN_WINDOWS
    return SHAPES.get(entry.operator, {})
