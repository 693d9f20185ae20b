"""`quantize_fp8` through the hip device, launched in the emulator. Its bits are compared with the
reference in tests/ops/test_quantize.py; here is what no operator shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from hk_backend.devices.cpu.device import cpu_device
from hk_backend.devices.hip import quantize_fp8
from hk_backend.devices.hip.device import HipDevice
from hk_backend.devices.hip.emulated import EmulatedLibrary, make_device
from hk_backend.kernels import catalogue
from hk_backend.terms.linear_arguments import QuantizeFp8Arguments

dtypes = pytest.mark.parametrize("dtype", quantize_fp8.DTYPES, ids=str)


@pytest.fixture
def device(library: EmulatedLibrary) -> HipDevice:
    return make_device(library, catalogue("gfx950"))


def arguments(m: int, k: int, dtype: torch.dtype) -> QuantizeFp8Arguments:
    """Rows of x that lie apart, NaN between them; each has a scale that is computed."""
    random = torch.Generator().manual_seed(m)
    x = torch.full((m, k + 8), torch.nan, dtype=dtype)[:, :k]
    x.copy_(torch.randn(m, k, generator=random))
    codes = torch.full((m, k), torch.nan).to(torch.float8_e4m3fn)
    return QuantizeFp8Arguments(x, (1, k), False, True, codes, torch.full((m, 1), torch.nan))


def results(of: QuantizeFp8Arguments, device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    of = replace(of, codes=of.codes.clone(), scales=of.scales.clone())
    device.run(of)
    return of.codes.view(torch.uint8), of.scales.nan_to_num(nan=-1.0)


@dtypes
def test_a_row_that_no_workgroup_of_four_waves_keeps(dtype: torch.dtype, device: HipDevice) -> None:
    of = arguments(4, 17000, dtype)
    (kernel,) = quantize_fp8.prepare(of, device.catalogue).kernels
    assert kernel.facts["scale"] == "token_long"
    for found, expected in zip(results(of, device), results(of, cpu_device()), strict=True):
        assert torch.equal(found, expected)


def test_a_lone_row_may_have_any_stride(device: HipDevice) -> None:
    """torch gives an axis of one element whatever stride it likes."""
    of = arguments(1, 72, torch.bfloat16)
    odd = replace(of, x=of.x.as_strided((1, 72), (3, 1)))
    assert quantize_fp8.prepare(odd, device.catalogue).numbers["x_row"] == 72
    assert torch.equal(results(odd, device)[0], results(of, device)[0])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"codes": torch.zeros(300, 264).to(torch.float8_e4m3fnuz)},
            r"dtype: torch.float8_e4m3fnuz .* expected torch.float8_e4m3fn$",
        ),
        (
            {"group": (300, 264)},
            r"granularity: .* reciprocal of dynamic scales of 300 x 264 .* or given ones$",
        ),
        ({"group": (128, 128), "divide": True}, r"divided by dynamic scales of 128 x 128"),
        ({"dynamic": False, "divide": True}, r"divided by given scales of 1 x 264"),
        ({"dynamic": False, "group": (1, 96)}, r"groups of 96 in 264 .* a power of two, or all"),
        ({"x": torch.ones(1, 1).bfloat16().expand(2**22, 8)}, r"x: \(4194304, 8\) .* fewer than"),
    ],
)
def test_what_the_kernels_do_not_compute(changes: dict[str, Any], why: str) -> None:
    of = replace(arguments(300, 264, torch.bfloat16), **changes)
    with pytest.raises(ValueError, match=why):
        quantize_fp8.prepare(of, catalogue("gfx950"))


def test_a_dtype_without_kernels() -> None:
    known = catalogue("gfx950")
    bf16 = tuple(e for e in known.families["quantize_fp8"] if e.facts["x"] == "bf16")
    only = replace(known, families={"quantize_fp8": bf16})
    with pytest.raises(ValueError, match=r"x: torch.float16 .* expected bf16"):
        quantize_fp8.prepare(arguments(1, 8, torch.float16), only)
