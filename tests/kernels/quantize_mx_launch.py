"""A launch of a quantize_mx kernel in the emulator, and its expected result: the reference's bits.

NaN fills the gaps between rows of x, and a pattern the codes and scales before the run. Buffers end
with the last element of their tensor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from hk_backend import reference
from hk_backend.devices.hip import mx_layout
from hk_backend.kernels import KernelEntry
from hk_backend.terms.weight_format import FORMATS, MX_BLOCK
from tests.kernels.emulated import run

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
UNWRITTEN = 0xA5


@dataclass(frozen=True)
class Case:
    """An input `x` and its options; `padding`: elements between rows of x, which begin at multiples
    of 16 bytes."""

    x: torch.Tensor
    rotation: int = 0
    round_scale_even: bool = True
    packed: bool = False
    padding: int = 0


@dataclass(frozen=True)
class Outcome:
    codes: torch.Tensor  # bytes, in the layout of the case
    scales: torch.Tensor
    report: Any


def expected(entry: KernelEntry, case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """The bytes of the codes and of the scales, flat."""
    format = str(entry.facts["format"])
    rounding = "even" if case.round_scale_even else "floor"
    codes, scales = reference.quantize_mx(case.x, format, rounding, case.rotation)
    codes = codes.view(torch.uint8)
    if case.packed:
        return mx_layout.packed_codes(codes, format), mx_layout.packed_scales(scales)
    return codes.flatten(), scales.flatten()


def sizes(entry: KernelEntry, case: Case) -> tuple[int, int]:
    """Bytes of the codes and of the scales."""
    format, (m, k) = str(entry.facts["format"]), case.x.shape
    if case.packed:
        return mx_layout.code_bytes(format, m, k), mx_layout.scale_bytes(m, k)
    return m * FORMATS[format].row_codes(k), m * k // MX_BLOCK


def launch(entry: KernelEntry, case: Case, seed: int = 0) -> Outcome:
    """Launches the kernel on the case, and returns its codes, scales and report."""
    m, k = case.x.shape
    stride = k + case.padding
    whole = torch.full(((m - 1) * stride + k,), math.nan, dtype=case.x.dtype)
    whole.as_strided((m, k), (stride, 1)).copy_(case.x)
    before = whole.view(torch.uint8).clone()
    codes, scales = (torch.full((size,), UNWRITTEN).byte() for size in sizes(entry, case))
    arrays = {
        "x": whole.view(torch.uint8).numpy(),
        "codes": codes.numpy(),
        "scales": scales.numpy(),
    }
    numbers = {
        "x_row": stride,
        "m": m,
        "k": k,
        "rotation": case.rotation,
        "round_scale_even": case.round_scale_even,
        "packed": case.packed,
    }
    report = run(entry, arrays, numbers, seed)
    assert torch.equal(whole.view(torch.uint8), before)
    return Outcome(codes, scales, report)


def is_right(entry: KernelEntry, case: Case, outcome: Outcome) -> bool:
    """Whether codes and scales have the bits of the reference's."""
    codes, scales = expected(entry, case)
    return torch.equal(outcome.codes, codes) and torch.equal(outcome.scales, scales)
