"""Device buffers of any size; pages that nobody touches take no memory."""

from __future__ import annotations

import functools
import mmap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hk_backend.kernels.entry import KernelEntry, pack_arguments
from hk_backend.lab.timing.l2 import Operands
from hk_backend.lab.timing.launch import Launch

PERIOD = 1_000_003
"""Number of elements after which random numbers repeat; a prime, so that rows differ."""


def zeros(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """A buffer of zeros that begins at a page, as with a GPU's allocator.

    The alignment decides whether a row straddles a cache line.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(mmap.mmap(-1, max(size, 1)), dtype, int(np.prod(shape))).reshape(shape)


def table(values: ArrayLike) -> NDArray[np.int32]:
    """A copy of `values` as int32 that begins at a page."""
    whole = np.asarray(values, np.int32)
    made: NDArray[np.int32] = zeros(whole.shape, np.int32)
    made[...] = whole
    return made


@functools.cache
def normal(dtype: str, seed: int = 0) -> NDArray[Any]:
    """`PERIOD` standard normal numbers as bf16, f16 or e4m3, as their bits."""
    values = np.random.default_rng(seed).standard_normal(PERIOD, np.float32)
    if dtype == "bf16":
        return ((values.view(np.uint32) + 0x8000) >> 16).astype(np.uint16)
    bits: NDArray[Any]
    if dtype == "e4m3":  # f16 has a larger bias, by 8, and one more bit of exponent: here it is 0
        bits = (values * np.float32(2.0**-8)).astype(np.float16).view(np.uint16)
        return (bits >> 8 & 0x80 | (bits & 0x7FFF) + 0x40 >> 7).astype(np.uint8)
    bits = values.astype(np.float16).view(np.uint16)
    return bits


def fill(target: NDArray[Any], dtype: str, seed: int) -> None:
    """Fill a view with random elements of `dtype`."""
    numbers = normal(dtype, seed)
    short = target.size <= PERIOD
    target[...] = (numbers[: target.size] if short else np.resize(numbers, target.size)).reshape(
        target.shape
    )


def launch_of(
    entry: KernelEntry,
    arrays: dict[str, NDArray[Any]],
    numbers: Mapping[str, float],
    work: NDArray[np.float64],
    samples: Sequence[int],
    flops: float = 0.0,
    moved: float | None = None,
    operands: Operands | None = None,
) -> Launch:
    """The launch of a kernel on an emulated machine with these buffers.

    Args:
        arrays: buffers by the struct's pointer fields; other pointers are null.
        numbers: values of the other fields.
        work, samples, flops, operands: fields of `Launch`.
        moved: fewest bytes that the launch must move; None: all of the buffers.

    Raises:
        ValueError: a buffer does not begin at a page, which would take other clocks.
    """
    from hk_backend import _emulator

    for name, buffer in arrays.items():
        if buffer.ctypes.data % mmap.PAGESIZE:
            raise ValueError(f"{name} at {buffer.ctypes.data:#x}; valid: from zeros() or table()")
    machine = _emulator.Machine(entry.arch)
    code = _emulator.CodeObject.load(entry.code_object(), entry.line_tables())
    pointers: dict[str, int | None] = dict.fromkeys(entry.arguments.pointers)
    for name, buffer in arrays.items():
        pointers[name] = machine.map(buffer.ctypes.data, buffer.nbytes, name)
    argument = pack_arguments(entry, **{**pointers, **numbers})
    return Launch(
        machine,
        code.kernel(entry.symbol),
        entry.workgroups(argument),
        entry.block,
        argument,
        entry.dynamic_lds,
        work,
        samples,
        flops,
        float(sum(array.nbytes for array in arrays.values())) if moved is None else moved,
        keep_alive=arrays,
        operands=operands,
    )
