"""Small emulator launches of each kernel family, for figures that only a run can provide.

These figures do not depend on the data: all buffers except the tables contain zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hk_backend.kernels.entry import KernelEntry, pack_arguments
from hk_backend.kernels.masks import ALL_KEYS
from hk_backend.kernels.row_sources import (
    PACKED,
    STORED_BYTES,
    TOKENS,
    block_reciprocal,
    group_arguments,
)
from hk_backend.lab.toolchain.clocks import WAVE

if TYPE_CHECKING:
    from hk_backend._emulator import Report

BYTES = 2  # bytes of an element, unless the kernel says otherwise
BLOCK_SIZE = 16
RECORD_BYTES = 24  # hk::MeasureRecord
MEASURED_BYTES = 1 << 16
SOFT_CAP = 50.0  # soft cap of Gemma 2
FP8_BLOCK = 128  # columns that share a scale


@dataclass(frozen=True)
class Sample:
    """Arguments of a launch: buffers by the pointer that takes them, and all other arguments."""

    buffers: dict[str, NDArray[Any]]
    numbers: dict[str, int | float | None] = field(default_factory=dict)


def split_strides(entry: KernelEntry, block_size: int) -> dict[str, int]:
    """Strides in elements of a cache that keeps 16 bytes together, as ROCM_ATTN's does.

    Keys are `[D/x, N, x]` and values `[D, N]`. The piece strides are 0 where the kernel reads whole
    rows.
    """
    if entry.facts["keys"] != "split":
        return {"key_piece": 0, "value_piece": 0}
    together = 16 // STORED_BYTES[str(entry.facts["stored"])]
    return {
        "key_token": together,
        "key_piece": together * block_size,
        "value_token": 1,
        "value_piece": block_size,
    }


def attention_prefill(
    entry: KernelEntry, tokens: int = 0, keys: int = 1024, causal: bool = False
) -> Sample:
    """Sample with one request and one head. With `tokens` 0 it fills the rows of one workgroup."""
    tokens = tokens or entry.tile.rows
    row = head_size = entry.tile.depth
    keys_lie = str(entry.facts["keys"])
    paged, stored = keys_lie != PACKED, STORED_BYTES[str(entry.facts["stored"])]
    block_size = 1 if keys_lie == TOKENS else BLOCK_SIZE
    blocks = -(-keys // block_size)
    slots = blocks * block_size
    buffers = {
        "query": _elements(tokens * row),
        "key": _elements(slots * row, stored),
        "value": _elements(slots * row, stored),
        "out": _elements(tokens * row),
        "lse": np.zeros(2 * tokens, np.float32),  # a kernel of parts writes two rows
        "query_start_loc": np.array([0, tokens], np.int32),
        "key_start_loc": np.array([0, keys], np.int32),
        "seq_lens": np.array([keys], np.int32),
        "block_table": np.arange(blocks, dtype=np.int32),
    }
    strides = {
        **dict.fromkeys(("query_token", "out_token", "key_token", "value_token"), row),
        **dict.fromkeys(("query_head", "out_head", "key_head", "value_head"), head_size),
        **dict.fromkeys(("key_block", "value_block"), block_size * row),
        **split_strides(entry, block_size),
        "lse_head": tokens,
        "lse_token": 1,
        **dict.fromkeys(("key_scale_head", "value_scale_head"), 0),
        "block_table_row": blocks,
    }
    numbers = {
        "num_requests": 1,
        "num_tokens": tokens,
        "num_heads": 1,
        "num_kv_heads": 1,
        "block_size": block_size,
        "block_reciprocal": block_reciprocal(keys_lie, block_size),
        "block_rows": block_size,
        "num_blocks": blocks,
        "causal": int(causal),
        "head_size": head_size,
        "value_size": head_size,
        "scale": head_size**-0.5,
        "value_factor": 1.0,
        "window": ALL_KEYS,
        **group_arguments(heads=1, kv_heads=1),
        "parts": 1,
        "part_keys": ALL_KEYS,
        "out_part": 0,
        "lse_part": 2 * tokens,
        "soft_cap": SOFT_CAP,
    }
    unused = ("key_start_loc",) if paged else ("seq_lens", "block_table")
    absent = (*unused, "key_scale", "value_scale", "sinks", "alibi_slopes")
    return Sample(
        {name: buffer for name, buffer in buffers.items() if name not in absent},
        {**strides, **numbers, **dict.fromkeys(absent)},
    )


def gemm(entry: KernelEntry) -> Sample:
    """Sample with one tile of C in bf16. It is so deep that waves with a share of the depth
    loop."""
    m, n, k = entry.tile.rows, entry.tile.columns, 17 * entry.tile.depth
    a, b = (STORED_BYTES[str(entry.facts[name])] for name in ("a", "b"))
    buffers = {"a": _elements(m * k, a), "b": _elements(n * k, b), "c": _elements(m * n)}
    if entry.facts["scales"] == "blocks":
        steps = -(-k // FP8_BLOCK)
        buffers["a_scale"] = np.zeros(steps * m, np.float32)
        buffers["b_block_scale"] = np.zeros(-(-n // FP8_BLOCK) * steps, np.float32)
    pointers = ("a_scale", "b_scale", "b_block_scale", "bias", "partial", "arrived")
    absent = set(pointers) - set(buffers)
    sizes = {"m": m, "n": n, "k": k, "a_row": k, "c_row": n, "splits": 1}
    rows = {"c_type": 0, "bias_type": 0, "a_scale_row": 1, "a_scale_step": m}
    return Sample(buffers, {**sizes, **rows, **dict.fromkeys(absent)})


def measure(entry: KernelEntry) -> Sample:
    """Sample with one workgroup, all of its waves, and two steps."""
    waves = entry.block // WAVE
    buffers: dict[str, NDArray[Any]] = {
        "records": np.zeros(waves * RECORD_BYTES, np.uint8),
        "results": np.zeros(entry.block, np.uint32),
        "memory": np.zeros(MEASURED_BYTES, np.uint8),
    }
    numbers = {"bytes": MEASURED_BYTES, "workgroups": 1, "steps": 2, "waves": (1 << waves) - 1}
    return Sample(buffers, {**numbers, "stride": 16})


def quantize_fp8(entry: KernelEntry) -> Sample:
    """Sample with two rows, each a little shorter than the columns of a workgroup."""
    m, k = 2, entry.tile.columns - 8
    buffers = {
        "x": _elements(m * k, 4 if entry.facts["x"] == "f32" else BYTES),
        "codes": _elements(m * k, 1),
        "scales": np.ones(m * -(-k // FP8_BLOCK), np.float32),
    }
    groups = {
        "row_shift": 0,
        "column_shift": 31,
        "scale_row": -(-k // FP8_BLOCK),
        "scale_column": 1,
    }
    return Sample(buffers, {"x_row": k, "m": m, "k": k, **groups})


SAMPLES: dict[str, Callable[[KernelEntry], Sample]] = {
    "attention_prefill": attention_prefill,
    "gemm": gemm,
    "measure": measure,
    "quantize_fp8": quantize_fp8,
}
"""Sample launches by operator."""


def run(entry: KernelEntry, sample: Sample, seed: int = 0) -> Report:
    """Launches a kernel in the emulator, with every check on.

    Raises `ImportError` without the emulator, `CodeObjectError`, `ArgumentError`.
    """
    from hk_backend import _emulator

    machine = _emulator.Machine(entry.arch)
    kernel = _emulator.CodeObject.load(entry.code_object(), entry.line_tables()).kernel(
        entry.symbol
    )
    addresses = {
        name: machine.map(buffer.ctypes.data, buffer.nbytes, name)
        for name, buffer in sample.buffers.items()
    }
    argument = pack_arguments(entry, **addresses, **sample.numbers)
    return machine.launch(
        kernel,
        list(entry.workgroups(argument)),
        [entry.block],
        argument,
        dynamic_lds=entry.dynamic_lds,
        seed=seed,
    )


def _elements(count: int, each: int = BYTES) -> NDArray[Any]:
    return np.zeros(count * each, np.uint8)
