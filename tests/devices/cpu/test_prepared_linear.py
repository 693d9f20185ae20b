"""Repeated linear calls on the cpu device, without repeated checks; also a machine without the
extension."""

from __future__ import annotations

import sys

import pytest
import torch

from hk_backend.devices.base import DeviceError
from hk_backend.devices.cpu import device as cpu
from hk_backend.devices.cpu.device import CpuDevice
from hk_backend.devices.cpu.isas import usable_isas
from hk_backend.ops import pack_weight
from hk_backend.ops.linear import linear_of_flat
from hk_backend.terms.packed_weight import PackedWeight
from tests.devices.prepared import repeat_linear


def test_an_extension_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_extension() -> None:
        raise ImportError("undefined symbol: _ZTVN")

    monkeypatch.setattr(cpu, "usable_isas", no_extension)
    with pytest.raises(DeviceError, match=r"hk_backend\._cpu .*undefined symbol.* reinstall"):
        cpu.cpu_device.__wrapped__()


N, K = 40, 96
BF16, FP32 = torch.bfloat16, torch.float32


@pytest.fixture
def device() -> CpuDevice:
    return CpuDevice(usable_isas()[0])


@pytest.fixture
def packed() -> PackedWeight:
    torch.manual_seed(0)
    return pack_weight(torch.randn(N, K, dtype=BF16), "bf16")


def run(
    device: CpuDevice,
    packed: PackedWeight,
    x: torch.Tensor,
    bias: torch.Tensor | None = None,
    dtype: torch.dtype = BF16,
) -> torch.Tensor:
    return linear_of_flat(x, packed.flat(), bias, dtype, None, device)


def repeat(
    device: CpuDevice, packed: PackedWeight, x: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor | None:
    return repeat_linear(device, x, packed, bias, BF16)


def test_it_repeats_for_other_values_biases_and_layers(
    device: CpuDevice, packed: PackedWeight
) -> None:
    other = pack_weight(torch.randn(N, K, dtype=BF16), "bf16")
    for rows, bias in ((1, None), (17, torch.randn(N)), (0, None), (5, torch.randn(N, dtype=BF16))):
        x = torch.randn(rows, K, dtype=BF16)
        assert repeat(device, packed, x, bias) is None
        run(device, packed, torch.randn_like(x), bias)
        for weight in (packed, other):
            found = repeat(device, weight, x, bias)
            fresh = run(CpuDevice(usable_isas()[0]), weight, x, bias)
            assert found is not None
            assert torch.equal(found, fresh)


@pytest.mark.parametrize(
    ("x", "bias"),
    [
        (torch.zeros(3, K, dtype=FP32), None),
        (torch.zeros(3, K + 8, dtype=BF16), None),
        (torch.zeros(K, 3, dtype=BF16).T, None),
        (torch.zeros(3, K, dtype=BF16), torch.zeros(N + 1)),
        (torch.zeros(3, K, dtype=BF16), torch.zeros(N, 2)[:, 0]),
        (torch.zeros(3, K, dtype=BF16), torch.zeros(1, N)),
    ],
)
def test_other_tensors_are_not_taken(
    x: torch.Tensor, bias: torch.Tensor | None, device: CpuDevice, packed: PackedWeight
) -> None:
    run(device, packed, torch.zeros(3, K, dtype=BF16))
    assert repeat(device, packed, x, bias) is None


def test_another_weight_at_the_same_address_is_not_taken(
    device: CpuDevice, packed: PackedWeight
) -> None:
    """The memory of a freed weight may hold another one."""
    x = torch.ones(3, K, dtype=BF16)
    run(device, packed, x)
    shorter = PackedWeight(packed.data[:-64], None, None, None, *fields(packed))
    scaled = PackedWeight(packed.data, torch.ones(N), None, None, *fields(packed))
    other = PackedWeight(packed.data, None, None, None, "fp16", *fields(packed)[1:])
    for weight in (shorter, scaled, other):
        assert repeat(device, weight, x) is None
    with pytest.raises(ValueError, match=r"weight\.data"):
        run(device, shorter, x)
    ones, twos = (
        PackedWeight(packed.data, torch.full((N,), factor), None, None, *fields(packed))
        for factor in (1.0, 2.0)
    )
    run(device, ones, x)
    assert repeat(device, ones, x) is not None
    found = repeat(device, twos, x)
    assert found is not None
    assert torch.equal(found, run(CpuDevice(usable_isas()[0]), twos, x)), "their own factors"


def fields(packed: PackedWeight) -> tuple[str, int, int, str, str]:
    return packed.format, packed.n, packed.k, packed.activations, packed.layout


def test_the_calls_that_are_kept_are_limited(
    device: CpuDevice, packed: PackedWeight, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["hk_backend.ops.linear"], "MOST_CALLS", 1)
    x = torch.zeros(3, K, dtype=BF16)
    run(device, packed, x)
    run(device, packed, x, dtype=FP32)
    assert repeat(device, packed, x) is None
