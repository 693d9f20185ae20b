"""The checker of linear layers must be able to fail: each fault that a kernel could have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from hk_backend import reference
from hk_backend.reference.linear import round_activations
from tests.ops.linear_cases import Case, Layer, make
from tests.ops.linear_oracle import check_result

FP8 = Case("fp8_e4m3fn", "token", "channel", m=9, n=40, k=256, bias=torch.bfloat16)
BLOCK = Case("fp8_e4m3fn", "token_block", "block", m=9, n=260, k=384, bias=torch.bfloat16)
MXFP4 = Case("mxfp4", "mx", m=9, n=40, k=256, bias=torch.bfloat16)
ROTATED = Case("mxfp4", "mx_rotated", m=9, n=40, k=256, rotation=64, bias=torch.bfloat16)
BF16 = Case("bf16", m=9, n=40, k=256, bias=torch.bfloat16)


def exact(layer: Layer) -> torch.Tensor:
    """The result of a perfect kernel: the reference, rounded once."""
    return layer.exact().to(layer.out_dtype or layer.x.dtype)


def on_result(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Layer], torch.Tensor]:
    return lambda layer: change(exact(layer))


def on_layer(**changes: Callable[[Layer], object]) -> Callable[[Layer], torch.Tensor]:
    def faulty(layer: Layer) -> torch.Tensor:
        return exact(replace(layer, **{name: change(layer) for name, change in changes.items()}))

    return faulty


def one_element(out: torch.Tensor) -> torch.Tensor:
    out = out.clone()
    out[5, 17] += 1e-3 * out.abs().mean()
    return out


def change_code(layer: Layer) -> torch.Tensor:
    """One element of the weight one code higher."""
    weight = layer.weight.clone()
    weight.view(torch.uint8)[7, 100] ^= 1
    return weight


def without_last_k(layer: Layer) -> torch.Tensor:
    x = layer.x.clone()
    x[:, -8:] = 0
    return x


def bf16_sum(layer: Layer) -> torch.Tensor:
    """Partial sums kept in bfloat16."""
    x = round_activations(layer.x, layer.format, layer.activations)
    weight = reference.dequantize(layer.weight, layer.format, layer.scales)
    parts = [a @ b.T for a, b in zip(x.split(64, 1), weight.split(64, 1), strict=True)]
    total = torch.zeros_like(parts[0])
    for part in parts:
        total = (total + part).bfloat16().double()
    assert layer.bias is not None
    return (total + layer.bias.double()).float()


FAULTS: dict[str, tuple[Case, Callable[[Layer], torch.Tensor]]] = {
    "one element": (BF16, on_result(one_element)),
    "bias shifted": (BF16, on_layer(bias=lambda layer: layer.bias.roll(1))),
    "end of K dropped": (BF16, on_layer(x=without_last_k)),
    "sum in bf16": (BF16, bf16_sum),
    "output rounded to bf16 first": (BF16, on_result(lambda out: out.bfloat16().float())),
    "one code": (FP8, on_layer(weight=change_code)),
    "scale of another channel": (FP8, on_layer(scales=lambda layer: layer.scales.roll(1, 0))),
    "block of another row": (BLOCK, on_layer(scales=lambda layer: layer.scales.roll(1, 0))),
    "one mx code": (MXFP4, on_layer(weight=change_code)),
    "mx scale of another block": (MXFP4, on_layer(scales=lambda layer: layer.scales.roll(1, 1))),
    "rotation left out, weights only": (
        ROTATED.but(activations="rotated"),
        on_layer(activations=lambda layer: "none"),
    ),
    "rotation of 32": (ROTATED, on_layer(rotation=lambda layer: 32)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_caught(fault: str) -> None:
    case, faulty = FAULTS[fault]
    layer = make(case)
    check_result(layer, exact(layer))  # the same layer without the fault passes
    wrong = faulty(layer)  # may give the layer an input that shows the fault
    with pytest.raises(AssertionError):
        check_result(layer, wrong)
