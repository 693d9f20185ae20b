"""Weights that are quantised while they are loaded: what the layer then computes with."""

from __future__ import annotations

import pytest
import torch

from hk_backend.engine.linear.online import pack_online
from hk_backend.engine.linear.options import Options
from hk_backend.engine.linear.route import apply

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
