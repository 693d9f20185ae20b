"""Tensors from a line of text, as in `bf16[64,128]=normal`, and back into files of numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2fnuz": torch.float8_e5m2fnuz,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
}
OWN_FP8 = {"gfx942": "e4m3fnuz", "gfx950": "e4m3"}
"""The format that `fp8` means: the e4m3 of the arch's matrix instructions."""
FILLS = "zeros, ones, nan, arange, normal, a number, or FILE.npy"
FILLS_OF_INTEGERS = "zeros, ones, arange, an integer in its range, or FILE.npy"
NUMPYS = (torch.float64, torch.float32, torch.float16)
"""Floating-point types that numpy has, too."""


class TensorError(ValueError):
    """A text that is no tensor; the message says what would be valid."""


def dtype_of(name: str, arch: str) -> torch.dtype:
    """The dtype of this name. Raises `TensorError`."""
    found = DTYPES.get(OWN_FP8[arch] if name == "fp8" else name)
    if found is None:
        raise TensorError(f"dtype {name!r}; valid: {', '.join(DTYPES)}, fp8")
    return found


def shape_of(text: str) -> list[int]:
    """The sizes in `64,128`. Raises `TensorError`."""
    try:
        sizes = [int(size, 0) for size in text.split(",")]
    except ValueError:
        sizes = [-1]
    if min(sizes) < 0:
        raise TensorError(f"shape [{text}]; valid: sizes as in [64,128]")
    return sizes


def tensor(
    dtype: torch.dtype, shape: Sequence[int], fill: str, random: torch.Generator
) -> torch.Tensor:
    """A tensor with these contents. Raises `TensorError`.

    Args:
        fill: zeros, ones, nan, arange, normal, a number, or the name of a file that ends in .npy.
    """
    try:
        if fill.endswith(".npy"):
            return _from_file(Path(fill), dtype, shape)
        if dtype.is_floating_point:
            return _of_reals(dtype, shape, fill, random)
        return _of_integers(dtype, shape, fill)
    except (RuntimeError, MemoryError, OverflowError) as error:  # more than the memory holds
        raise TensorError(f"shape {list(shape)}: {str(error).splitlines()[0]}") from None


def _of_reals(
    dtype: torch.dtype, shape: Sequence[int], fill: str, random: torch.Generator
) -> torch.Tensor:
    if fill == "normal":
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        return torch.randn(shape, generator=random, dtype=wide).to(dtype)
    if fill == "arange":
        return torch.arange(math.prod(shape), dtype=torch.float64).to(dtype).reshape(shape)
    try:
        number = {"zeros": 0.0, "ones": 1.0}[fill] if fill in ("zeros", "ones") else float(fill)
    except ValueError:
        raise TensorError(f"contents {fill!r}; valid: {FILLS}") from None
    return torch.tensor(number, dtype=torch.float64).to(dtype).repeat(*shape)


def _of_integers(dtype: torch.dtype, shape: Sequence[int], fill: str) -> torch.Tensor:
    if fill == "arange":
        return torch.arange(math.prod(shape)).to(dtype).reshape(shape)
    limits = torch.iinfo(dtype)
    try:
        number = {"zeros": 0, "ones": 1}[fill] if fill in ("zeros", "ones") else int(fill, 0)
    except ValueError:
        number = limits.max + 1
    if not limits.min <= number <= limits.max:
        raise TensorError(f"contents {fill!r}; valid: {FILLS_OF_INTEGERS}")
    return torch.full(tuple(shape), number, dtype=dtype)


def _from_file(path: Path, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """The numbers of a file: rounded to a floating-point dtype, unchanged in an integer dtype."""
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise TensorError(f"{path}: {error}; valid: a file that numpy.save wrote") from None
    if array.shape != tuple(shape):
        raise TensorError(f"{path} has the shape {list(array.shape)}; valid: {list(shape)}")
    if array.dtype.kind not in ("biuf" if dtype.is_floating_point else "biu"):
        raise TensorError(f"{path} has {array.dtype}; valid: numbers that {dtype} can hold")
    if dtype.is_floating_point:
        with np.errstate(invalid="ignore"):  # signalling NaN
            return torch.from_numpy(array.astype(np.float64)).to(dtype)
    limits = torch.iinfo(dtype)
    if array.size and not limits.min <= int(array.min()) <= int(array.max()) <= limits.max:
        raise TensorError(f"{path} exceeds {dtype}; valid: {limits.min} to {limits.max}")
    return torch.from_numpy(array.astype(np.int64)).to(dtype)


def save(tensor: torch.Tensor, path: Path) -> None:
    """Write a file that `numpy.load` reads, with the tensor's values.

    numpy has neither bf16 nor FP8: those are written as float32, which holds each of their values.
    """
    widened = tensor.is_floating_point() and tensor.dtype not in NUMPYS
    with path.open("wb") as file:
        np.save(file, (tensor.float() if widened else tensor).numpy())
