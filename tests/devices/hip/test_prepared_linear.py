"""Repeated launches of linear layers, without repeated checks.

They have the bits of a first call with such tensors. Tensors of another form take the path with all
checks.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from hk_backend import ops, reference
from hk_backend.devices import always
from hk_backend.devices.hip.device import HipDevice
from hk_backend.devices.hip.emulated import EmulatedLibrary, make_device
from hk_backend.kernels import catalogue
from tests.devices.prepared import repeat_linear
from tests.ops.linear_cases import Case, Layer, make
from tests.ops.linear_oracle import check, check_result
from tests.ops.test_linear_on_gfx950 import SERVED

CASES = {
    "bf16": Case("bf16", m=5, n=40, k=96),
    "with a bias": Case("fp16", m=17, n=40, k=96, bias=torch.float16),
    "split": Case("bf16", m=3, n=40, k=4096),
    "rows apart": Case("bf16", m=3, n=16, k=64, x_layout="rows apart"),
    "fp8 by token, split": Case("fp8_e4m3fn", "token", "channel", m=2, k=8192),
    **{" ".join(kind): Case(*kind, m=3) for kind in SERVED},
    "fp8 static": Case("fp8_e4m3fn", "tensor", "channel", static=True),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


@pytest.fixture
def device(library: EmulatedLibrary) -> Iterator[HipDevice]:
    device = make_device(library, catalogue("gfx950"))
    with always(device):
        yield device


def repeat(layer: Layer, device: HipDevice) -> torch.Tensor | None:
    out_dtype = layer.out_dtype or layer.x.dtype
    return repeat_linear(device, layer.x, layer.pack(), layer.bias, out_dtype)


@every_case
def test_other_tensors_of_the_same_layout(case: Case, device: HipDevice) -> None:
    """The launch takes another layer's weight, bias and rows."""
    first, other = make(case), make(case.but(seed=1))
    assert repeat(first, device) is None
    first.run()
    for layer in (other, first):
        found = repeat(layer, device)
        assert found is not None
        repeated_bits = found.view(torch.uint8)
        check_result(layer, found)
        device.prepared_calls.clear()
        assert torch.equal(layer.run().view(torch.uint8), repeated_bits)


@pytest.mark.parametrize(
    "changes",
    [
        {"m": 4},
        {"k": 104},
        {"n": 24},
        {"x_layout": "rows apart"},
        {"x_layout": "three axes"},
        {"out_dtype": torch.bfloat16},
        {"bias": None},
        {"bias": torch.bfloat16},
        {"format": "fp16"},
    ],
    ids=str,
)
def test_another_layout_is_another_call(changes: dict[str, object], device: HipDevice) -> None:
    case = Case("bf16", m=5, n=40, k=96, bias=torch.float32)
    make(case).run()
    other = case.but(**changes)
    if other.x_layout != "three axes":
        assert repeat(make(other), device) is None
    check(other)
    check(case)


@pytest.mark.parametrize("activations", ["token", "tensor"])
def test_codes_that_came_with_their_scales(activations: str, device: HipDevice) -> None:
    """Codes with their own scales take one launch."""
    case = Case("fp8_e4m3fn", activations, "channel", n=40, k=256, out_dtype=torch.bfloat16)
    for m in (5, 1):
        for seed in (0, 1, 2):
            layer = make(case.but(m=m, seed=seed))
            codes, scales = reference.quantize_fp8(layer.x, activations)
            before = device.library.launch_calls()
            found = ops.linear(codes, layer.pack(), None, torch.bfloat16, scales)
            assert device.library.launch_calls() == before + 1
            assert len(device.prepared_calls) == (1 if m == 5 else 2), "all rows are alike"
            check_result(layer, found)
    with pytest.raises(ValueError, match=r"^x_scales: torch.float32 \[3\] on cpu is not valid"):
        ops.linear(codes, layer.pack(), None, torch.bfloat16, torch.ones(3))


def test_a_bad_weight_gets_its_error(device: HipDevice) -> None:
    """After a valid call of the layer, a bad weight still gets its error: the launcher rejects
    it."""
    layer = make(CASES["bf16"])
    layer.run()
    packed = layer.pack()
    with pytest.raises(ValueError, match=r"^weight\.data: torch.uint8 \[\d+\] is not valid"):
        ops.linear(layer.x, replace(packed, data=packed.data[:-16]))
    with pytest.raises(ValueError, match=r"^weight\.factors: .* is not valid"):
        ops.linear(layer.x, replace(packed, factors=torch.ones(3)))
    with pytest.raises(ValueError, match=r"^x: torch.float16 is not valid"):
        ops.linear(layer.x.half(), packed)
    with pytest.raises(ValueError, match=r"^x: a tensor that requires grad"):
        ops.linear(layer.x.requires_grad_(), packed)


def test_a_copy_is_not_kept(device: HipDevice) -> None:
    """Rows that the kernels cannot read in place are copied anew in each call."""
    case = CASES["bf16"].but(k=88, x_layout="columns apart")
    for seed in (0, 1):
        check(case.but(seed=seed))
    layer = make(CASES["bf16"])
    m, k = layer.x.shape
    shifted = torch.empty(m * k + 1, dtype=layer.x.dtype)[1:].view(m, k)
    apart = torch.empty(m, k + 1, dtype=layer.x.dtype)[:, :k]
    wanted = layer.run()
    for x in (shifted, apart):
        layer.x = x.copy_(layer.x)
        assert torch.equal(layer.run(), wanted)
        assert repeat(layer, device) is None


def test_tensors_that_overlap_are_not_kept(device: HipDevice) -> None:
    """The address of an overlap could belong to either tensor."""
    layer = make(CASES["bf16"])
    m, k = layer.x.shape
    rows = torch.randn(m, k + 48).bfloat16()
    layer.x, layer.bias = rows[:, :k], rows[1, k : k + 40]
    wanted = layer.run()
    assert repeat(layer, device) is None
    layer.x, layer.bias = layer.x.clone(), layer.bias.clone()
    assert torch.equal(layer.run(), wanted)


def test_no_more_are_kept_than_fit(device: HipDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["hk_backend.ops.linear"], "MOST_CALLS", 2)
    for m in (1, 2, 3):
        check(CASES["bf16"].but(m=m))
    assert repeat(make(CASES["bf16"].but(m=1)), device) is None
    assert repeat(make(CASES["bf16"].but(m=3)), device) is not None


def test_no_tensor_is_kept(device: HipDevice) -> None:
    """A preparation keeps only the layout of tensors."""
    layer = make(CASES["fp8 by token, split"])
    packed = layer.pack()
    found = ops.linear(layer.x, packed)
    held = [weakref.ref(tensor) for tensor in (layer.x, packed.data, packed.factors, found)]
    assert len(device.prepared_calls) == 1
    del layer, packed, found
    assert [of() for of in held] == [None] * 4
