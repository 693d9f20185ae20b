"""`pack_weight`: its results, and refusals that name the tensor."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from hk_backend.ops import WeightError, linear, pack_weight
from tests.ops.linear_cases import Case, make

FP8 = torch.float8_e4m3fn


def uint8(*shape: int, fill: int = 127) -> torch.Tensor:
    return torch.full(shape, fill, dtype=torch.uint8)


def fp8(n: int = 130, k: int = 136) -> torch.Tensor:
    return torch.ones(n, k).to(FP8)


def test_factors_and_block_scales() -> None:
    factors = torch.rand(130) + 0.5
    blocks = torch.rand(2, 2) + 0.5
    for scales, factors_wanted, blocks_wanted in (
        (torch.tensor(2.0), torch.full((130,), 2.0), None),
        (torch.tensor([2.0]).bfloat16(), torch.full((130,), 2.0), None),
        (torch.tensor([1.0]), None, None),
        (factors, factors, None),
        (factors[:, None], factors, None),
        (factors.bfloat16(), factors.bfloat16().float(), None),
        (blocks, None, blocks),
        (blocks.T.contiguous().T, None, blocks),
    ):
        weight = pack_weight(fp8(), "fp8_e4m3fn", scales)
        pairs = (weight.factors, factors_wanted), (weight.block_scales, blocks_wanted)
        for found, want in pairs:
            assert (found is None) == (want is None)
            assert found is None or (torch.equal(found, want) and found.is_contiguous())


@pytest.mark.parametrize("format", ["fp8_e4m3fn", "fp8_e4m3fnuz", "mxfp8"])
def test_a_nan_code_makes_its_column_nan_and_no_other(format: str, isa: str) -> None:
    """A NaN code is not lost where x is zero, nor with one row or many."""
    for kind in ("tensor", "block") if format != "mxfp8" else ("mx",):
        layer = make(Case(format, scale_kind=kind, m=20, n=40))
        clean = layer.run()
        nan = 0x80 if format == "fp8_e4m3fnuz" else 0x7F
        layer.weight.view(torch.uint8)[9, 95] = nan
        layer.weight.view(torch.uint8)[39, 0] = nan | 0x80
        layer.x[3] = 0.0
        clean[3] = 0.0
        weight = layer.pack()
        assert weight.factors is not None
        assert weight.factors.isnan().nonzero().flatten().tolist() == [9, 39]
        for rows in (slice(0, 20), slice(3, 4)):
            out = linear(layer.x[rows], weight, out_dtype=torch.float32)
            assert out[:, [9, 39]].isnan().all()
            others = [column for column in range(40) if column not in (9, 39)]
            assert torch.equal(out[:, others], clean[rows][:, others])


ON_FP8 = {"weight": fp8(), "format": "fp8_e4m3fn", "scales": torch.ones(1)}
ON_MX = {"weight": uint8(2, 16), "format": "mxfp4", "scales": uint8(2, 1)}
DYNAMIC, STATIC = {"activations": "token"}, {"activations": "tensor"}
SHAPES = r"\[1\], \[130\], \[130, 1\] or \[2, 2\]"
REFUSED: list[tuple[dict[str, Any], str, str, str]] = [
    # arguments; the tensor at fault; what was found; what would be valid
    ({"weight": torch.ones(8)}, "weight", r"\[8\]", r"\[N, K\]"),
    ({"weight": torch.ones(2, 3, 8)}, "weight", r"\[2, 3, 8\]", r"\[N, K\]"),
    ({"weight": torch.ones(2, 8).half()}, "weight", "torch.float16", "torch.float32"),
    ({"weight": torch.ones(0, 8)}, "weight", r"\[0, 8\]", "one row"),
    ({"weight": torch.ones(2, 0)}, "weight", "K = 0", "multiple of 8"),
    ({"weight": torch.ones(2, 12)}, "weight", "K = 12", "multiple of 8"),
    (ON_MX | {"weight": fp8(2, 40), "format": "mxfp8"}, "weight", "K = 40", "multiple of 32"),
    (ON_MX | {"weight": uint8(2, 25), "format": "mxfp6_e2m3"}, "weight", "K = 33", "of 32"),
    (ON_MX | {"weight": uint8(2, 8)}, "weight", "K = 16", "multiple of 32"),
    ({"scales": torch.ones(2)}, "scales", r"\[2\]", "None"),
    (ON_FP8 | {"scales": None}, "scales", "None", "float32"),
    (ON_FP8 | {"scales": torch.ones(129)}, "scales", r"\[129\]", SHAPES),
    (ON_FP8 | {"scales": torch.ones(3, 2)}, "scales", r"\[3, 2\]", SHAPES),
    (ON_FP8 | {"scales": torch.ones(1).double()}, "scales", "torch.float64", "float32"),
    (ON_MX | {"scales": None}, "scales", "None", r"uint8.*\[2, 1\]"),
    (ON_MX | {"scales": uint8(1, 2)}, "scales", r"\[1, 2\]", r"\[2, 1\]"),
    (ON_MX | {"scales": torch.ones(2, 1)}, "scales", "torch.float32", "uint8"),
    (ON_FP8 | DYNAMIC | {"input_scale": torch.ones(1)}, "input_scale", r"\[1\]", "None"),
    (ON_FP8 | STATIC | {"input_scale": torch.ones(2)}, "input_scale", r"\[2\]", "one number"),
]


@pytest.mark.parametrize(("arguments", "argument", "found", "valid"), REFUSED)
def test_refuses_tensors(arguments: dict[str, Any], argument: str, found: str, valid: str) -> None:
    arguments = {"weight": torch.ones(2, 8), "format": "fp32"} | arguments
    with pytest.raises(WeightError, match=f"^{argument}: .*{found}.* expected .*{valid}") as error:
        pack_weight(**arguments)
    assert error.value.argument == argument


@pytest.mark.parametrize("bad", [0.0, -0.0, -1.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("shape", [(), (130,), (2, 2)])
def test_refuses_fp8_scales(shape: tuple[int, ...], bad: float) -> None:
    scales = torch.ones(shape)
    scales.view(-1)[-1] = bad
    with pytest.raises(WeightError, match=r"^scales: .*expected positive, finite") as error:
        pack_weight(fp8(), "fp8_e4m3fn", scales)
    assert error.value.argument == "scales"
    assert str(bad) in str(error.value)
    if shape:
        assert str([size - 1 for size in shape]) in str(error.value)
    with pytest.raises(WeightError, match=f"^input_scale: {bad}") as error:
        pack_weight(**ON_FP8, activations="tensor", input_scale=torch.tensor([bad]))
    assert error.value.argument == "input_scale"


LARGEST = {"mxfp8": 246, "mxfp6_e2m3": 252, "mxfp6_e3m2": 250, "mxfp4": 252}
"""448, 7.5, 28 and 6 times 2^(code - 127) are below 2^128; with one code more they are not."""


@pytest.mark.parametrize(("format", "largest"), LARGEST.items())
def test_refuses_mx_scales_beyond_float32(format: str, largest: int) -> None:
    layer = make(Case(format))
    assert layer.scales is not None
    layer.scales[20, 1] = largest
    assert layer.run().isfinite().any()
    for code, meaning in ((largest + 1, rf"2\^{largest - 126}"), (255, "NaN")):
        layer.scales[20, 1] = code
        match = rf"^scales: code {code} \({meaning}\) at \[20, 1\].* expected codes up to {largest}"
        with pytest.raises(WeightError, match=match):
            layer.pack()


ROTATIONS: list[tuple[str, object, str, str]] = [
    ("mx", 32, "32 with activations 'mx'", "0"),
    ("rotated", 0, "0 with activations 'rotated'", "one of 32, 64, 128"),
    ("mx_rotated", 16, "16 with activations 'mx_rotated'", "one of 32, 64, 128"),
    ("mx_rotated", 64.0, "64.0 with activations 'mx_rotated'", "one of 32, 64, 128"),
    ("mx_rotated", 64, "64 with K = 96", "a divisor of K"),
]
ON_96 = ON_MX | {"weight": uint8(2, 48), "scales": uint8(2, 3)}
BAD_NAMES: list[tuple[dict[str, Any], str]] = [
    ({"format": "fp8"}, "^format: 'fp8'.* expected .*fp8_e4m3fn.*mxfp4"),
    ({"activations": "row"}, "^activations: 'row'.* expected 'none'"),
    (DYNAMIC, "^activations: 'token'.* with fp32"),
    (ON_FP8 | {"activations": "mx"}, "^activations: 'mx'.* expected 'none' or 'token' or 'tensor'"),
    ({"rotation": 32}, "^rotation: 32 with activations 'none'.* expected 0"),
    ({"activations": "rotated", "rotation": 32}, "^activations: 'rotated'.* expected 'none' with"),
    *(
        (ON_96 | {"activations": how, "rotation": by}, f"^rotation: {found}.* expected {valid}")
        for how, by, found, valid in ROTATIONS
    ),
    ({"weight": torch.ones(2, 8, requires_grad=True)}, "^weight: .*grad"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_NAMES)
def test_refuses_names(arguments: dict[str, Any], message: str) -> None:
    arguments = {"weight": torch.ones(2, 8), "format": "fp32"} | arguments
    with pytest.raises(ValueError, match=message):
        pack_weight(**arguments)


def test_parameters_are_packed_where_no_gradient_is_recorded() -> None:
    with torch.no_grad():
        weight = pack_weight(torch.nn.Parameter(torch.ones(2, 8)), "fp32")
    assert not weight.data.requires_grad


def test_packing_does_not_keep_the_original() -> None:
    layer = make(Case("fp8_e4m3fn", scale_kind="block", n=130))
    weight = pack_weight(layer.weight, layer.format, layer.scales)
    want = linear(layer.x, weight)
    layer.weight.view(torch.uint8).fill_(0)
    assert layer.scales is not None
    layer.scales.fill_(7.0)
    assert torch.equal(linear(layer.x, weight), want)
