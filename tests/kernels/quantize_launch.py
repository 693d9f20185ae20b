"""A launch of a quantize_fp8 kernel in the emulator, and its expected result: the reference's bits.

NaN fills everything that must not matter: the gaps between rows of x, and codes and scales before
the run. Buffers end with the last element of their tensor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hk_backend import reference
from hk_backend.kernels import KernelEntry
from tests.kernels.emulated import run

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
BLOCK = 128
ALL = 31  # a shift that leaves one group
SHIFTS = {"tensor": (ALL, ALL), "token": (0, ALL), "token_block": (0, 7), "block": (7, 7)}
"""Shifts from a row's or column's number to its group's, by the granularity of given scales."""


@dataclass(frozen=True)
class Case:
    """An input `x` and its options.

    Scales may be given, in the shape of `granularity`. `padding`: elements between rows of x.
    `offset`: elements before its first. `scales_of_columns`: the scales of a column lie together in
    memory, not those of a row.
    """

    x: torch.Tensor
    given: torch.Tensor | None = None
    granularity: str = "tensor"
    padding: int = 0
    offset: int = 0
    scales_of_columns: bool = False


@dataclass(frozen=True)
class Outcome:
    codes: torch.Tensor  # the bits of the codes
    scales: torch.Tensor
    report: Any


def launch(entry: KernelEntry, case: Case, seed: int = 0) -> Outcome:
    """Launches the kernel on the case, and returns its codes, scales and report."""
    m, k = case.x.shape
    stride = k + case.padding
    whole = torch.full((case.offset + (m - 1) * stride + k,), math.nan, dtype=case.x.dtype)
    whole[case.offset :].as_strided((m, k), (stride, 1)).copy_(case.x)
    before = whole.view(torch.uint8).clone()
    codes = torch.full((m, k), 0xFF, dtype=torch.uint8)
    scales = _scales(entry, case)
    if case.scales_of_columns:
        scales = scales.T.contiguous().T
    groups = SHIFTS[case.granularity]
    arrays = {
        "x": whole.view(torch.uint8).numpy()[case.offset * whole.element_size() :],
        "codes": codes.numpy(),
        "scales": scales.T.numpy() if case.scales_of_columns else scales.numpy(),
    }
    numbers = {
        "row_shift": groups[0],
        "column_shift": groups[1],
        "scale_row": scales.stride(0),
        "scale_column": scales.stride(1),
    }
    report = run(entry, arrays, {"x_row": stride, "m": m, "k": k, **numbers}, seed)
    assert torch.equal(whole.view(torch.uint8), before)
    return Outcome(codes, scales, report)


def _scales(entry: KernelEntry, case: Case) -> torch.Tensor:
    """The given scales, or room for scales that the kernel computes."""
    if case.given is not None:
        return case.given.clone().view(-1, case.given.shape[-1])
    m, k = case.x.shape
    columns = -(-k // BLOCK) if entry.facts["scale"] == "block" else 1
    return torch.full((m, columns), math.nan)


def is_right(entry: KernelEntry, case: Case, outcome: Outcome) -> bool:
    """Whether codes and scales have the bits of the reference's; any NaN equals a NaN scale."""
    granularity = case.granularity
    if case.given is None:
        granularity = "token_block" if entry.facts["scale"] == "block" else "token"
    codes, scales = reference.quantize_fp8(case.x, granularity, case.given)
    same_codes = torch.equal(outcome.codes, codes.view(torch.uint8))
    found, wanted = (_bits(tensor) for tensor in (outcome.scales, scales))
    return same_codes and bool((found == wanted).all())


def _bits(scales: torch.Tensor) -> NDArray[np.int32]:
    one_nan = torch.where(scales.isnan(), torch.nan, scales)
    return one_nan.flatten().view(torch.int32).numpy()
