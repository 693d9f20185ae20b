"""Bad arguments of `linear` are named with their value and the valid ones."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from hk_backend.devices import DeviceError
from hk_backend.devices.cpu.isas import usable_isas
from hk_backend.ops import PackedWeight, linear, pack_weight, quantize_fp8, quantize_mx

ERRORS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no axis": ({"x": torch.tensor(1.0)}, r"x: \(\)", r"\[..., 16\]"),
    "K": ({"x": torch.ones(3, 24)}, r"x: \(3, 24\)", r"\[..., 16\]"),
    "integers": ({"x": torch.ones(3, 16, dtype=torch.int8)}, "x: torch.int8", "bfloat16, float16"),
    "x in fp8": (
        {"x": torch.ones(3, 16).to(torch.float8_e4m3fn)},
        "x: torch.float8_e4m3fn",
        "bfloat16",
    ),
    "x of another float": ({"x": torch.ones(3, 16).half()}, "x: torch.float16", "torch.float32"),
    "out_dtype": ({"out_dtype": torch.float64}, "out_dtype: torch.float64", "bfloat16"),
    "bias's shape": ({"bias": torch.ones(16)}, r"bias: \(16,\)", r"\[4\]"),
    "bias of two axes": ({"bias": torch.ones(1, 4)}, r"bias: \(1, 4\)", r"\[4\]"),
    "bias's dtype": ({"bias": torch.ones(4).double()}, "bias: torch.float64", "float32"),
    "bias elsewhere": ({"bias": torch.ones(4, device="meta")}, "bias: meta", "cpu"),
    "gradient of x": ({"x": torch.ones(3, 16, requires_grad=True)}, "x: .*grad", "inference"),
    "gradient of bias": ({"bias": torch.ones(4, requires_grad=True)}, "bias: .*grad", "inference"),
}


@pytest.fixture
def weight() -> PackedWeight:
    return pack_weight(torch.ones(4, 16), "fp32")


@pytest.mark.parametrize(("changes", "found", "valid"), ERRORS.values(), ids=ERRORS)
def test_errors(weight: PackedWeight, changes: dict[str, Any], found: str, valid: str) -> None:
    arguments = {"x": torch.ones(3, 16)} | changes
    with pytest.raises(ValueError, match=f"^{found}.* expected .*{valid}"):
        linear(weight=weight, **arguments)


def test_a_weight_of_another_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """HK_DEVICE may change after packing, and a packed weight may come from another machine."""
    weight = pack_weight(torch.ones(4, 16), "fp32")
    other = next(isa for isa in usable_isas() if isa != weight.layout)
    foreign = replace(weight, layout=other)
    with pytest.raises(ValueError, match=f"^weight: packed for {other}.* expected {weight.layout}"):
        linear(torch.ones(3, 16), foreign)


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "data cut": ({"data": torch.zeros(64, dtype=torch.uint8)}, "torch.uint8"),
    "data cast": ({"data": torch.zeros(1 << 12)}, "torch.uint8"),
    "factors cut": ({"factors": torch.ones(100)}, r"torch.float32 \[130\]"),
    "factors cast": ({"factors": torch.ones(130).bfloat16()}, r"torch.float32 \[130\]"),
    "factors strided": ({"factors": torch.ones(260)[::2]}, "contiguous"),
    "blocks turned": ({"block_scales": torch.ones(3, 2)}, r"torch.float32 \[2, 3\]"),
    "input scale": ({"input_scale": torch.ones(2)}, r"torch.float32 \[1\]"),
}


@pytest.mark.parametrize(("changes", "valid"), BROKEN.values(), ids=BROKEN)
def test_a_weight_whose_tensors_are_not_what_packing_made(
    changes: dict[str, Any], valid: str
) -> None:
    """Kernels would read past tensors that were cast, cut or mixed up in a module or a file."""
    codes, scales = quantize_fp8(torch.randn(130, 264), "channel")
    weight = replace(pack_weight(codes, "fp8_e4m3fn", scales), **changes)
    (name,) = changes
    with pytest.raises(ValueError, match=rf"^weight\.{name}: .* expected .*{valid}"):
        linear(torch.ones(3, 264), weight)


def test_devices_without_kernels_say_so(weight: PackedWeight, on_gfx950: None) -> None:
    why = "emulated:gfx950: no {} kernels for gfx950 yet"
    x = torch.ones(3, 16)
    with pytest.raises(DeviceError, match=re.escape(why.format("linear (fp32)"))):
        pack_weight(torch.ones(4, 16), "fp32")
    with pytest.raises(DeviceError, match=why.format("quantize_mx")):
        quantize_mx(torch.ones(3, 32), "mxfp4")
    other = r"^weight: packed for .* expected gfx950, the layout of emulated:gfx950"
    with pytest.raises(ValueError, match=other):
        linear(x, weight)
