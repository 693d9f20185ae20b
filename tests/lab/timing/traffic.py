"""Launches of memory-bound kernels (csrc/kernels/measure/traffic.hip), with published figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hk_backend.kernels.entry import KernelEntry, pack_arguments
from hk_backend.lab.timing.launch import Launch
from hk_backend.lab.timing.workloads import buffers

Sizes = Mapping[str, int]
BF16 = 2  # bytes
BLOCK_KEYS, HEADS, CHANNELS = 16, 8, 128
"""Sizes of decode: tokens of a block, query heads of a key head, channels of a head."""
NORM_CHANNELS = 2048
ROTARY_ROWS = 32
"""Rows of a workgroup of `rotary`."""


@dataclass(frozen=True)
class Problem:
    """The buffers and arguments of a launch.

    Args:
        arrays: buffers, by the name of the kernel's pointer argument.
        outputs: names of the buffers that the kernel writes.
        numbers: values of the kernel's other arguments.
        samples: workgroups to trace; they share data where the kernel's workgroups can.
    """

    arrays: dict[str, NDArray[Any]]
    outputs: tuple[str, ...]
    numbers: dict[str, int | float]
    samples: tuple[int, ...] = (0, 1)

    @property
    def written(self) -> int:
        """Bytes that the launch writes, counting each once."""
        return sum(self.arrays[name].nbytes for name in self.outputs)

    @property
    def read(self) -> int:
        return sum(array.nbytes for array in self.arrays.values()) - self.written


def gemv(format: str, n: int, k: int) -> Problem:
    """One row of x [k] and a weight [n, k] in `format`: bf16, fp8 or mxfp4."""
    row_bytes = {"bf16": 2 * k, "fp8": k, "mxfp4": k // 2}[format]
    scales = {"bf16": 0, "fp8": 4, "mxfp4": k // 32}[format]  # bytes of a row
    arrays = {
        "x": buffers.zeros((row_bytes,), np.uint8),
        "weight": buffers.zeros((n, row_bytes), np.uint8),
        "x_scales": buffers.zeros((scales,), np.uint8),
        "weight_scales": buffers.zeros((n, scales), np.uint8),
        "out": buffers.zeros((n,), np.float32),
    }
    return Problem(arrays, ("out",), {"n": n, "row_bytes": row_bytes})


def decode(batch: int, keys: int, kv_heads: int, splits: int) -> Problem:
    """Decode attention: `keys` cached tokens of each request, in blocks in random order."""
    blocks = batch * keys // BLOCK_KEYS
    cache = (blocks, BLOCK_KEYS, kv_heads, CHANNELS)
    out = (batch, kv_heads, splits, HEADS)
    table = np.random.default_rng(0).permutation(blocks).reshape(batch, -1)
    arrays = {
        "query": buffers.zeros((batch, kv_heads, HEADS, CHANNELS), np.uint16),
        "key": buffers.zeros(cache, np.uint16),
        "value": buffers.zeros(cache, np.uint16),
        "block_table": buffers.table(table),
        "out": buffers.zeros((*out, CHANNELS), np.float32),
        "sums": buffers.zeros(out, np.float32),
    }
    numbers = {"batch": batch, "kv_heads": kv_heads, "splits": splits, "keys": keys}
    scale = CHANNELS**-0.5 * np.log2(np.e)
    return Problem(arrays, ("out", "sums"), {**numbers, "log2_scale": scale}, (0, 1, splits))


def cast_mxfp8(count: int) -> Problem:
    """Conversion of bf16 [count] to E4M3, with one scale for 32 elements."""
    arrays = {
        "x": buffers.zeros((count,), np.uint16),
        "out": buffers.zeros((count,), np.uint8),
        "scales": buffers.zeros((count // 32,), np.uint8),
    }
    return Problem(arrays, ("out", "scales"), {"count": count})


def rotary(heads: int, tokens: int) -> Problem:
    """Rotary embedding of bf16 [heads, tokens, 128]; `heads`: the heads of all requests
    together."""
    angles, rows = (tokens, CHANNELS // 2), heads * tokens
    arrays = {
        "x": buffers.zeros((rows, CHANNELS), np.uint16),
        "cosine": buffers.zeros(angles, np.uint16),
        "sine": buffers.zeros(angles, np.uint16),
        "out": buffers.zeros((rows, CHANNELS), np.uint16),
    }
    same_tokens = tokens // ROTARY_ROWS  # a workgroup of the next head, with the same tokens
    return Problem(arrays, ("out",), {"rows": rows, "tokens": tokens}, (0, 1, same_tokens))


def layernorm(rows: int, drop: int) -> Problem:
    """LayerNorm of x + residual, bf16 [rows, 2048]; `drop` in 65536 elements of x are dropped."""
    tensors = ("x", "residual", "sum", "out")
    arrays = {
        **{name: buffers.zeros((rows, NORM_CHANNELS), np.uint16) for name in tensors},
        **{name: buffers.zeros((NORM_CHANNELS,), np.uint16) for name in ("weight", "bias")},
    }
    return Problem(arrays, ("sum", "out"), {"rows": rows, "drop": drop})


PROBLEMS: dict[str, Callable[..., Problem]] = {
    "gemv_bf16": lambda n, k: gemv("bf16", n, k),
    "gemv_fp8": lambda n, k: gemv("fp8", n, k),
    "gemv_mxfp4": lambda n, k: gemv("mxfp4", n, k),
    "decode": decode,
    "cast_mxfp8": cast_mxfp8,
    "rotary": rotary,
    "layernorm": layernorm,
}
"""Functions that make a kernel's problem from its sizes, by kernel."""


def launch(entry: KernelEntry, problem: Problem) -> Launch:
    """Prepare `entry` on a problem; every workgroup has the same work."""
    arrays = {name: array for name, array in problem.arrays.items() if array.size}
    shape = {**dict.fromkeys(entry.arguments.pointers), **dict.fromkeys(arrays, 0)}
    count = entry.workgroups(pack_arguments(entry, **{**shape, **problem.numbers}))[0]
    samples = sorted({sample for sample in problem.samples if sample < count})
    moved = float(problem.read + problem.written)
    return buffers.launch_of(entry, arrays, problem.numbers, np.ones(count), samples, moved=moved)


@dataclass(frozen=True)
class Target:
    """A published figure of an MI355X, and the problem with the same traffic.

    Args:
        published: the figure, in `unit`: microseconds (`us`) or terabytes per second (`TB/s`).
        counted: False: the model misses it, since the kernel has other work (LayerNorm) or for a
            reason not known (rotary; docs/timing.md).
    """

    name: str
    kernel: str
    sizes: Sizes
    published: float
    unit: str
    source: str
    counted: bool = True

    def problem(self) -> Problem:
        return PROBLEMS[self.kernel](**self.sizes)


TUNED = "AITER's tuned tables, M=1"
DECODE = "paged decode BF16, 8k context, best published; 64/8 heads by the bytes"


def _gemv(format: str, n: int, k: int, us: float, source: str = TUNED) -> Target:
    return Target(f"{format} {n}x{k} M=1", f"gemv_{format}", {"n": n, "k": k}, us, "us", source)


def _decode(batch: int, us: float, splits: int) -> Target:
    sizes = {"batch": batch, "keys": 8192, "kv_heads": 8, "splits": splits}
    return Target(f"decode batch {batch}", "decode", sizes, us, "us", DECODE)


def _rotary(tokens: int, terabytes: float) -> Target:
    sizes = {"heads": 16 * 16, "tokens": tokens}
    source = "HipKittens, B=16 H=16 d=128"
    return Target(f"rotary {tokens}", "rotary", sizes, terabytes, "TB/s", source, False)


def _layernorm(tokens: int, terabytes: float) -> Target:
    sizes = {"rows": 16 * tokens, "drop": 655}
    source = "HipKittens, dropout + residual + LayerNorm, B=16 D=2048"
    return Target(f"layernorm {tokens}", "layernorm", sizes, terabytes, "TB/s", source, False)


TARGETS = (
    _gemv("fp8", 10240, 8192, 17.4),
    _gemv("fp8", 8192, 8192, 15.2),
    _gemv("fp8", 57344, 8192, 78.0),
    _gemv("fp8", 8192, 28672, 45.2),
    _gemv("mxfp4", 10240, 8192, 14.7),
    _gemv("mxfp4", 57344, 8192, 44.7),
    _gemv("mxfp4", 6144, 4096, 8.4, "MXFP4 GEMM, M=1"),
    _gemv("bf16", 10240, 8192, 33.6, "BF16 GEMM with few rows, M=1"),
    _decode(32, 149, splits=8),
    _decode(128, 681, splits=4),
    _decode(256, 1363, splits=4),
    Target("BF16 to MX cast", "cast_mxfp8", {"count": 1 << 26}, 4.5, "TB/s", "cast; size assumed"),
    *(_rotary(n, t) for n, t in ((1024, 2.945), (2048, 3.742), (4096, 3.362), (8192, 3.497))),
    *(_layernorm(n, t) for n, t in ((1024, 4.27), (2048, 3.30), (4096, 3.54), (8192, 3.82))),
)
"""Published figures of an MI355X for memory-bound kernels.

Decode of one request is not among them: its bytes take only 6 of its 45 microseconds.
"""
