"""Weights that are quantised while they are loaded: what the layer then computes with."""

from __future__ import annotations

import pytest
import torch

from hk_backend import ops
from hk_backend.engine.linear import online
from hk_backend.engine.linear.online import pack_online
from hk_backend.engine.linear.options import Options, choose
from hk_backend.engine.linear.route import apply
from hk_backend.quantize.method import Method
from hk_backend.quantize.recipe import RECIPES

K = 32


class Layer(torch.nn.Module):
    prefix = "model.layers.0.mlp.down_proj"


@pytest.mark.parametrize(
    ("format", "largest", "stands_for"),
    [
        # OCP e2m1 ends at 6. 7 = 1.75 * 2**2 rounds to 2 * 2**2 in its one bit of mantissa, so the
        # scale is 2, and 3.5 is a tie between 3 and 4, which is even. Not rounded: 6, saturated
        ("mxfp4", 7.0, 8.0),
        # OCP e4m3 ends at 448. 496 = 1.9375 * 2**8 is a tie in its three bits, and rounds to 2**9:
        # the scale is 2, and 248 a tie between 240 and 256, which is even. Not rounded: 448
        ("mxfp8", 496.0, 512.0),
    ],
)
def test_mx_scales_are_rounded_to_even(format: str, largest: float, stands_for: float) -> None:
    weight = torch.zeros(8, K)
    weight[3, 5] = largest
    layer = Layer()
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    pack_online(layer, weight, Options(format, "none"))
    one = torch.zeros(1, K)
    one[0, 5] = 1
    out = apply(layer, one)
    assert out[0].tolist() == [0, 0, 0, stands_for, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("k", "activations", "rotation"),
    [(192, "mx", None), (96, "mx", None), (256, "mx", 128), (256, "none", 32)],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_rotated_as_by_quantize(
    k: int,
    activations: str,
    rotation: int | None,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The layer of `--method rotated`, also where it is made a few rows at a time."""
    monkeypatch.setattr(online, "AT_ONCE", 3 * k)
    generator = torch.Generator().manual_seed(0)
    weight, x = (torch.randn(n, k, generator=generator).to(dtype) for n in (40, 9))
    layer = Layer()
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    options = choose("hk_mxfp4", "", activations=activations, rotation=rotation)
    pack_online(layer, weight, options)
    block = rotation or {192: 64, 96: 32}[k]
    method, recipe = Method("rotated", block), RECIPES["mxfp4"]
    codes, scales = method.quantize(method.target(weight), recipe)
    how = {"mx": "mx_rotated", "none": "rotated"}[activations]
    packed = ops.pack_weight(codes, "mxfp4", scales, activations=how, rotation=block)
    assert torch.equal(apply(layer, x), ops.linear(x, packed))
    exact = x.double() @ weight.double().T
    error = (apply(layer, x).double() - exact).norm() / exact.norm()
    # of two independent rounding errors of at most 2^-2 of an element, e2m1's half step
    assert error < 2**0.5 / 4
