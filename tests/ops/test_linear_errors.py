"""Bad arguments of `linear` are named with their value and the valid ones."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from hk_backend.devices import DeviceError
from hk_backend.devices.cpu.isas import usable_isas
from hk_backend.ops import PackedWeight, linear, pack_weight, quantize_fp8
from tests.ops.linear_cases import Case, make

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


CODES = torch.zeros(3, 96, dtype=torch.float8_e4m3fn)
ROW_SCALES = torch.ones(3, 1)
CODE_ERRORS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no scales": ({"x_scales": None}, "x: torch.float8_e4m3fn", "codes with x_scales"),
    "no codes": ({"x": torch.ones(3, 96)}, "x: torch.float32", "codes .* torch.float8_e4m3fn"),
    "codes of another format": (
        {"x": torch.zeros(3, 96, dtype=torch.float8_e4m3fnuz)},
        "x: torch.float8_e4m3fnuz",
        "torch.float8_e4m3fn",
    ),
    "no dtype": ({"out_dtype": None}, "out_dtype: torch.float8_e4m3fn", "bfloat16"),
    "too few": ({"x_scales": torch.ones(2, 1)}, r"x_scales: torch.float32 \[2, 1\]", r"\[3, 1\]"),
    "two columns": ({"x_scales": torch.ones(3, 2)}, r"x_scales: .* \[3, 2\]", r"\[3, 1\] or \[1\]"),
    "one axis": ({"x_scales": torch.ones(3)}, r"x_scales: torch.float32 \[3\]", r"\[3, 1\]"),
    "halves": ({"x_scales": ROW_SCALES.half()}, "x_scales: torch.float16", "float32"),
    "elsewhere": ({"x_scales": torch.ones(3, 1, device="meta")}, "x_scales: .* on meta", "cpu"),
    "gradient": (
        {"x_scales": torch.ones(3, 1, requires_grad=True)},
        "x_scales: .*grad",
        "inference",
    ),
}


MX_CODES, MX_SCALES = torch.zeros(3, 72, dtype=torch.uint8), torch.full((3, 3), 127).byte()
MX_ERRORS: dict[str, tuple[dict[str, Any], str, str]] = {
    "codes of 4 bits": ({"x": MX_CODES[:, :48]}, r"x: \(3, 48\)", r"\[..., 72\]"),
    "signed": ({"x": MX_CODES.view(torch.int8)}, "x: torch.int8", "mxfp6_e2m3, torch.uint8"),
    "one scale": ({"x_scales": MX_SCALES[:1, :1]}, r"x_scales: .* \[1, 1\]", r"uint8 \[3, 3\]"),
    "in float32": ({"x_scales": MX_SCALES.float()}, "x_scales: torch.float32", "torch.uint8"),
}


@pytest.mark.parametrize(("changes", "found", "valid"), MX_ERRORS.values(), ids=MX_ERRORS)
def test_errors_of_mx_codes(changes: dict[str, Any], found: str, valid: str) -> None:
    arguments: dict[str, Any] = {"x": MX_CODES, "x_scales": MX_SCALES, "out_dtype": torch.bfloat16}
    packed = make(Case("mxfp4", "mxfp6_e2m3")).pack()
    assert linear(**arguments, weight=packed).shape == (3, packed.n)
    with pytest.raises(ValueError, match=f"^{found}.* expected .*{valid}"):
        linear(**arguments | changes, weight=packed)


@pytest.fixture
def weight() -> PackedWeight:
    return pack_weight(torch.ones(4, 16), "fp32")


@pytest.mark.parametrize(
    ("of_codes", "changes", "found", "valid"),
    [*((False, *row) for row in ERRORS.values()), *((True, *row) for row in CODE_ERRORS.values())],
    ids=[*ERRORS, *CODE_ERRORS],
)
def test_errors(
    weight: PackedWeight, of_codes: bool, changes: dict[str, Any], found: str, valid: str
) -> None:
    arguments: dict[str, Any] = {"x": torch.ones(3, 16), "weight": weight}
    if of_codes:
        packed = make(Case("fp8_e4m3fn", "token", "channel")).pack()
        arguments = {"x": CODES, "x_scales": ROW_SCALES, "out_dtype": torch.bfloat16}
        arguments["weight"] = packed
    with pytest.raises(ValueError, match=f"^{found}.* expected .*{valid}"):
        linear(**arguments | changes)


@pytest.mark.parametrize(
    "case", [Case("fp8_e4m3fn", "none", "channel"), Case("bf16"), Case("mxfp8")], ids=str
)
def test_a_weight_whose_activations_are_not_rounded(case: Case) -> None:
    why = r"^x_scales: scales with .* expected None, or a weight whose activations are quantised"
    with pytest.raises(ValueError, match=why):
        linear(CODES, make(case).pack(), None, torch.bfloat16, ROW_SCALES)


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
    other = r"^weight: packed for .* expected gfx950, the layout of emulated:gfx950"
    with pytest.raises(ValueError, match=other):
        linear(x, weight)
