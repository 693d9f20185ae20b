"""Bounds on a multiply with few rows: three kinds of work, each timed alone.

The kinds are reading the packed bytes, multiplying and adding in registers, and expanding packed
elements to float32 in registers. Each does the work of a whole call on the same threads. The last
two assume float32: mxfp4 with mx activations is multiplied in integers and may be faster.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import torch

from hk_backend import _cpu
from hk_backend.devices import device_for
from hk_backend.ops import PackedWeight

CACHED_ROWS, CACHED_CHANNELS = 64, 512
"""Rows and channels of a weight that fits a core's first or second cache in any format."""


def bound_calls(
    weights: Sequence[PackedWeight], tokens: int
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yields the calls `read`, `multiply` and `unpack`, each the work of one multiply.

    The multiply has `tokens` rows; each call of `read` takes the next of `weights`.
    """
    isa = device_for("cpu").name.removeprefix("cpu:")
    weight = weights[0]
    turn = itertools.cycle(weights)

    def read() -> None:
        data = next(turn).data
        _cpu.read_bytes(isa, torch.get_num_threads(), data.data_ptr(), data.nbytes)

    def multiply() -> None:
        _cpu.multiply_add(isa, torch.get_num_threads(), tokens * weight.n * weight.k)

    kind = _cpu.Format.__members__[weight.format]
    repeats = max(1, weight.n * weight.k // (CACHED_ROWS * CACHED_CHANNELS))
    cached = _cpu.packed_bytes(isa, kind, CACHED_ROWS, CACHED_CHANNELS)
    sample = weight.data[:cached].clone()

    def unpack() -> None:
        _cpu.expand_weight(
            isa,
            torch.get_num_threads(),
            kind,
            CACHED_ROWS,
            CACHED_CHANNELS,
            sample.data_ptr(),
            repeats,
        )

    yield "read", read
    yield "multiply", multiply
    yield "unpack", unpack
