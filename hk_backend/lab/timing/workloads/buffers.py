"""Device buffers of any size; pages that nobody touches take no memory."""

from __future__ import annotations

import functools
import mmap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from hk_backend import _emulator
    from hk_backend.kernels.entry import KernelEntry

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


def machine_with(
    entry: KernelEntry, buffers: dict[str, NDArray[Any]]
) -> tuple[_emulator.Machine, _emulator.Kernel, dict[str, int]]:
    """An emulated machine with the buffers mapped, the kernel, and the buffers' addresses.

    Raises `ValueError` for a buffer that does not begin at a page: it would take other clocks.
    """
    from hk_backend import _emulator

    for name, buffer in buffers.items():
        if buffer.ctypes.data % mmap.PAGESIZE:
            raise ValueError(f"{name} at {buffer.ctypes.data:#x}; valid: from zeros() or table()")
    machine = _emulator.Machine(entry.arch)
    code = _emulator.CodeObject.load(entry.code_object(), entry.line_tables())
    addresses = {
        name: machine.map(buffer.ctypes.data, buffer.nbytes, name)
        for name, buffer in buffers.items()
    }
    return machine, code.kernel(entry.symbol), addresses
