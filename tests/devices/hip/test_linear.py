"""`gemm` through the hip device: prepared, launched in the emulator, checked against float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip import linear
from hk_backend.devices.hip.device import HipDevice
from hk_backend.devices.hip.emulated import EmulatedLibrary, EmulatorError, make_device
from hk_backend.kernels import catalogue
from hk_backend.ops import LinearRequest
from hk_backend.terms.linear_arguments import LinearArguments, QuantizeMxArguments
from hk_backend.terms.packed_weight import PackedWeight
from tests.devices.hip.device import SynchronisesInChecks, current_streams
from tests.kernels.catalogues import selected, with_kernels
from tests.kernels.test_gemm import is_right

FORMATS = {torch.bfloat16: "bf16", torch.float16: "fp16"}
dtypes = pytest.mark.parametrize("dtype", FORMATS, ids=str)


@pytest.fixture
def device(library: EmulatedLibrary) -> HipDevice:
    return make_device(library, catalogue("gfx950"))


def arguments(m: int, n: int, k: int, dtype: torch.dtype) -> LinearArguments:
    """Rows of x that lie apart, NaN between them; an output full of NaN."""
    random = torch.Generator().manual_seed(m)
    wide = torch.full((m, k + 8), torch.nan, dtype=dtype)
    x = wide[:, :k]
    x.copy_(torch.randn(m, k, generator=random))
    rows = torch.randn(n, k, generator=random).to(dtype)
    return LinearArguments(x, weight_of(rows), None, torch.full((m, n), torch.nan, dtype=dtype))


def weight_of(rows: torch.Tensor) -> PackedWeight:
    data = rows.view(torch.uint8).flatten()
    n, k = rows.shape
    return PackedWeight(data, None, None, None, FORMATS[rows.dtype], n, k, "none", "rows")


def matrix(of: LinearArguments) -> torch.Tensor:
    return of.weight.data.view(of.x.dtype).view(of.weight.n, of.weight.k)


@dtypes
@pytest.mark.parametrize("shape", [(1, 16, 8), (40, 72, 104), (257, 24, 64)])
def test_a_launch(shape: tuple[int, int, int], dtype: torch.dtype, device: HipDevice) -> None:
    of = arguments(*shape, dtype)
    device.run(of)
    assert is_right(of.out, of.x, matrix(of))


@dtypes
def test_the_self_check_passes(
    dtype: torch.dtype, library: EmulatedLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    current_streams(library, monkeypatch)
    kernels = catalogue("gfx950")
    (entry,) = (e for e in kernels.families["gemm"] if e.facts["out"] == linear.DTYPES[dtype])
    verdict = SynchronisesInChecks(library, kernels).verify(linear, entry, 0)
    assert verdict, verdict.why


def test_the_self_check_sees_another_kernel(
    library: EmulatedLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bfloat16's place in the catalogue taken by the kernel for float16: wrong numbers."""
    current_streams(library, monkeypatch)
    whole = catalogue("gfx950")
    bf16, f16 = (selected("gemm", out=out) for out in ("bf16", "f16"))
    wrong = replace(bf16, symbol=f16.symbol)
    device = SynchronisesInChecks(library, with_kernels(whole, wrong))
    assert "gemm_bf16 failed its self-check" in device.verify(linear, wrong, 0).why


def test_nothing_to_do(device: HipDevice) -> None:
    device.run(arguments(0, 16, 8, torch.bfloat16))
    assert isinstance(device.library, EmulatedLibrary)
    assert device.library.report()["kernels"] == {}


def test_a_finding_is_an_error(device: HipDevice) -> None:
    """A weight that is shorter than it claims: its end is not the kernel's to read."""
    of = arguments(8, 16, 64, torch.bfloat16)
    call = linear.prepare(of, device.catalogue)
    short = call.tensors["b"][:-1]
    with pytest.raises(EmulatorError, match=r"out-of-bounds.*gemm_bf16"):
        device.launch(replace(call, tensors={**call.tensors, "b": short}), 0)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"x": torch.ones(3, 64)}, r"x: torch.float32 .* bfloat16 or float16"),
        ({"bias": torch.ones(16)}, "bias: a tensor"),
        ({"out": torch.ones(3, 16)}, r"out: torch.float32 .* the dtype of x"),
        ({"x": torch.ones(3, 65).bfloat16()[:, :64]}, "x: a stride of 65 elements"),
        ({"x": torch.ones(3 * 64 + 1).bfloat16()[1:].view(3, 64)}, "x: address 0x"),
    ],
)
def test_what_the_kernels_do_not_compute(changes: dict[str, Any], why: str) -> None:
    of = replace(arguments(3, 16, 64, torch.bfloat16), **changes)
    with pytest.raises(ValueError, match=why):
        linear.prepare(of, catalogue("gfx950"))


def test_a_lone_row_may_have_any_stride(device: HipDevice) -> None:
    """torch gives an axis of one element whatever stride it likes."""
    of = arguments(1, 16, 72, torch.bfloat16)
    of = replace(of, x=of.x.as_strided((1, 72), (3, 1)), out=of.out.as_strided((1, 16), (5, 1)))
    numbers = linear.prepare(of, device.catalogue).numbers
    assert (numbers["a_row"], numbers["c_row"]) == (72, 16)
    device.run(of)
    assert is_right(of.out, of.x, matrix(of))


def test_a_weight_of_another_device_or_format() -> None:
    of = arguments(3, 16, 64, torch.bfloat16)
    for changes in ({"layout": "avx2"}, {"format": "fp16"}):
        wrong = replace(of, weight=replace(of.weight, **changes))
        with pytest.raises(ValueError, match=r"weight: .* packed for .* expected bf16 as rows"):
            linear.prepare(wrong, catalogue("gfx950"))


def test_no_layer_is_routed_here_yet(device: HipDevice) -> None:
    request = LinearRequest("cpu", torch.bfloat16, "bf16", 16, 64)
    assert device.verdict(request).why == "no linear kernels for gfx950 yet"
    assert not device.weight_layout


def test_an_operator_without_a_module_is_named(device: HipDevice) -> None:
    nothing = torch.empty(0)
    with pytest.raises(DeviceError, match="emulated:gfx950: no quantize_mx kernels for gfx950 yet"):
        device.run(QuantizeMxArguments(nothing, "mxfp4", True, nothing, nothing))
