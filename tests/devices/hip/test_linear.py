"""Linear layers and `quantize_fp8` on the hip device, launched in the emulator.

tests/ops and tests/kernels test the numbers. The tests here cover behaviour that no operator's
result shows.
"""

from __future__ import annotations

from ctypes import byref, c_void_p
from dataclasses import replace
from typing import Any

import pytest
import torch

from hk_backend.devices.hip import linear, quantize_fp8
from hk_backend.devices.hip.call import KernelCall
from hk_backend.devices.hip.device import HipDevice
from hk_backend.devices.hip.emulated import EmulatedLibrary, make_device
from hk_backend.devices.hip.library import HipError
from hk_backend.devices.hip.weight_layout import pack, packed_bytes
from hk_backend.kernels import catalogue
from hk_backend.kernels.gemm_plan import can_split
from hk_backend.terms.linear_arguments import (
    LinearArguments,
    PackWeightArguments,
    QuantizeFp8Arguments,
)
from hk_backend.terms.packed_weight import PackedWeight
from tests.devices.hip.device import SynchronisesInChecks, current_streams
from tests.devices.hip.graph import Mode
from tests.devices.hip.hip_calls import stream

KERNELS = catalogue("gfx950").families["gemm"]


@pytest.fixture
def device(library: EmulatedLibrary) -> HipDevice:
    return make_device(library, catalogue("gfx950"))


def arguments(m: int, n: int, k: int) -> LinearArguments:
    """Arguments of a layer: whole numbers in bfloat16, so that sums are exact. The rows of x lie
    apart, with NaN between them."""
    random = torch.Generator().manual_seed(m)
    wide = torch.full((m, k + 8), torch.nan, dtype=torch.bfloat16)
    x = wide[:, :k]
    x.copy_(torch.randint(-3, 4, (m, k), generator=random))
    rows = torch.randint(-3, 4, (n, k), generator=random).bfloat16()
    out = torch.full((m, n), torch.nan)
    return LinearArguments(x, weight_of(rows), None, out)


def weight_of(rows: torch.Tensor) -> PackedWeight:
    n, k = rows.shape
    data = torch.empty(packed_bytes("bf16", n, k), dtype=torch.uint8)
    pack(PackWeightArguments(rows, "bf16", n, k, None, None, "none", data))
    return PackedWeight(data, None, None, None, "bf16", n, k, "none", "gfx950")


def matrix(weight: PackedWeight) -> torch.Tensor:
    """A matrix, unpacked by the contract of csrc/include/hk/args/gemm.hpp, with its padding."""
    groups = -(-weight.n // 16)
    pieces = weight.data.view(torch.bfloat16).view(groups, -1, 16, 8)
    return pieces.transpose(1, 2).reshape(groups * 16, -1)


def exact(of: LinearArguments) -> torch.Tensor:
    return of.x.float() @ matrix(of.weight)[: of.weight.n, : of.weight.k].float().T


@pytest.mark.parametrize("shape", [(1, 16, 8), (40, 72, 104), (257, 24, 64), (3, 40, 4096)])
def test_a_launch(shape: tuple[int, int, int], device: HipDevice) -> None:
    """Splits leave the workspace unchanged: a leftover counter would end the next launch early."""
    of = arguments(*shape)
    for _ in range(2):
        of.out.fill_(torch.nan)
        device.run(of)
        assert torch.equal(of.out, exact(of))
    assert not device.workspaces.of(0, 0, 0).arrived.any()


class WrongWhereSplit(SynchronisesInChecks):
    """A device whose sums are twice too large if the depth is split."""

    def launch(self, call: KernelCall, index: int) -> None:
        super().launch(call, index)
        call.tensors["c"].mul_(min(call.numbers["splits"], 2))


def test_the_self_check_splits_the_depth(
    library: EmulatedLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check splits every kernel that may be split: a kernel can be right undivided and wrong in
    splits."""
    current_streams(library, monkeypatch)
    device = WrongWhereSplit(library, catalogue("gfx950"))
    for entry in KERNELS:
        assert bool(device.verify(linear.OPERATOR, entry, 0)) != can_split(entry, tiles=1)


def test_a_self_check_beside_a_capture_says_nothing_of_the_kernel(
    library: EmulatedLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During a capture on another stream no wait is allowed. Later the kernel is checked again."""
    current_streams(library, monkeypatch)
    device = SynchronisesInChecks(library, catalogue("gfx950"))
    begin = ("hipStreamBeginCapture", c_void_p(stream(library, non_blocking=True)))
    library.call(*begin, Mode.GLOBAL)
    assert "hipErrorStreamCaptureUnsupported" in device.verify(linear.OPERATOR, KERNELS[0], 0).why
    with pytest.raises(HipError, match="Invalidated"):
        library.call("hipStreamEndCapture", begin[1], byref(c_void_p()))
    assert device.verify(linear.OPERATOR, KERNELS[0], 0)


@pytest.mark.parametrize("shift", [1, 4])
def test_rows_that_begin_anywhere_are_copied(shift: int, device: HipDevice) -> None:
    """The kernels read 16 bytes at a time."""
    of = arguments(3, 16, 64)
    x = torch.zeros(3 * 65 + shift, dtype=torch.bfloat16)[shift:].view(3, 65)[:, :64]
    of = replace(of, x=x.copy_(of.x))
    device.run(of)
    assert torch.equal(of.out, exact(of))


def test_a_lone_row_may_have_any_stride(device: HipDevice) -> None:
    """torch gives an axis of one element whatever stride it likes."""
    of = arguments(1, 16, 72)
    of = replace(of, x=of.x.as_strided((1, 72), (3, 1)), out=of.out.as_strided((1, 16), (5, 1)))
    numbers = linear.OPERATOR.prepare(of, device.catalogue).numbers
    assert (numbers["a_row"], numbers["c_row"]) == (72, 16)
    device.run(of)
    assert torch.equal(of.out, exact(of))


def test_a_format_without_kernels() -> None:
    of = arguments(3, 16, 64)
    with pytest.raises(ValueError, match=r"weight: .* x in torch.float32 is not valid"):
        linear.OPERATOR.prepare(replace(of, x=of.x.float()), catalogue("gfx950"))


def to_quantise(m: int, k: int, dtype: torch.dtype) -> QuantizeFp8Arguments:
    """Rows of x that lie apart, NaN between them; the kernel computes a scale for each."""
    random = torch.Generator().manual_seed(m)
    x = torch.full((m, k + 8), torch.nan, dtype=dtype)[:, :k]
    x.copy_(torch.randn(m, k, generator=random))
    codes = torch.full((m, k), torch.nan).to(torch.float8_e4m3fn)
    return QuantizeFp8Arguments(x, (1, k), False, True, codes, torch.full((m, 1), torch.nan))


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
    of = replace(to_quantise(300, 264, torch.bfloat16), **changes)
    with pytest.raises(ValueError, match=why):
        quantize_fp8.OPERATOR.prepare(of, catalogue("gfx950"))


def test_a_dtype_without_kernels() -> None:
    known = catalogue("gfx950")
    bf16 = tuple(e for e in known.families["quantize_fp8"] if e.facts["x"] == "bf16")
    only = replace(known, families={"quantize_fp8": bf16})
    with pytest.raises(ValueError, match=r"x: torch.float16 .* expected bf16"):
        quantize_fp8.OPERATOR.prepare(to_quantise(1, 8, torch.float16), only)
