"""Values that tell right from wrong: edges of every type, halfway cases, and random bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]

_F32 = [
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000,
    0x80800000, 0x3F800000, 0xBF800000, 0x3F7FFFFF, 0x3F800001, 0x3F000000, 0xBF000000,
    0x3FC00000, 0x40200000, 0xC0200000, 0x40600000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000,
    0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 0xFFBFFFFF, 0x4B000001, 0x4F000000,
    0x4EFFFFFF, 0x4F800000, 0xCF000000, 0x33800000, 0x477FEFFF, 0x477FF000, 0x387FC000,
    0x33000000, 0x33000001, 0x38801000,
]  # fmt: skip
_F16 = [
    0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x3C00, 0xBC00, 0x3BFF, 0x3C01,
    0x3800, 0xB800, 0x3E00, 0x4100, 0xC100, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01,
    0x7C01, 0xFDFF, 0x6400, 0x77FF, 0x7800, 0x2E66,
]  # fmt: skip
_F64 = [
    0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x800FFFFFFFFFFFFF,
    0x0010000000000000, 0x3FF0000000000000, 0xBFF0000000000000, 0x3FE0000000000000,
    0x4004000000000000, 0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF, 0x7FF0000000000000,
    0xFFF0000000000000, 0x7FF8000000000000, 0xFFF0000000000001, 0x41DFFFFFFFC00000,
    0x41E0000000000000, 0x41EFFFFFFFE00000, 0xC1E0000000000000, 0x47EFFFFFE0000000,
    0x47EFFFFFF0000000, 0x36A0000000000000, 0x3690000000000001, 0x3FF0000010000000,
]  # fmt: skip
_U32 = [
    0, 1, 2, 3, 0x1F, 0x20, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFF, 0x800000,
    0xFFFFFF, 0x1000000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF, 0x00FF00FF,
    0x0C0D0E0B, 0x08090A07, 0x00200005, 0x00070010, 0xDEADBEEF,
]  # fmt: skip
_U64 = [
    0, 1, 0x3F, 0x40, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x100000000, 0x7FFFFFFFFFFFFFFF,
    0x8000000000000000, 0x8000000000000001, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF,
    0x0000000080000000, 0x123456789ABCDEF0,
]  # fmt: skip
_EDGES = {"f16": _F16, "f32": _F32, "f64": _F64, "32": _U32, "64": _U64}


def edges(type_name: str, count: int, rng: np.random.Generator) -> U64:
    """`count` values of a type (f16, f32, f64, or the width in bits), two thirds of them edges."""
    width = int(type_name.lstrip("fuib"))
    known = _EDGES.get(type_name) or _EDGES["64" if width > 32 else "32"]
    some = rng.choice(np.array(known, np.uint64), count)
    random = rng.integers(0, 1 << 63, count, np.uint64) * 2 + rng.integers(0, 2, count, np.uint64)
    if type_name.startswith("f"):  # moderate exponents, so that sums and products are finite
        mantissa = {16: 10, 32: 23, 64: 52}[width]
        bias = (1 << (width - mantissa - 2)) - 1
        exponent = rng.integers(-8, 8, count) + bias
        keep = np.uint64((1 << mantissa) - 1 | 1 << (width - 1))
        moderate = random & keep | exponent.astype(np.uint64) << np.uint64(mantissa)
        random = np.where(rng.random(count) < 0.7, moderate, random)
    mask = np.uint64((1 << width) - 1)
    return np.where(rng.random(count) < 0.66, some, random) & mask
