"""The result that `linear` must return, and how far float32 arithmetic may stray from it.

No tolerance is chosen: each is the forward error bound of a dot product summed in float32 in any
order (Higham, Accuracy and Stability, section 3.1) and one rounding to the output's dtype. Rounding
of the activations, and their rotation, have no tolerance at all: kernels must do as the reference
does, bit by bit.
"""

from __future__ import annotations

import torch

from hk_backend import reference
from hk_backend.devices import device_for
from hk_backend.reference.linear import round_activations
from hk_backend.terms.weight_format import FORMATS
from tests.ops.linear_cases import Case, Layer, make
from tests.ops.oracle import BF16_PRODUCTS, ROUNDOFF, SMALLEST, U, close, one_thread

ROUNDINGS = 6
"""Roundings besides those of the sum: scale of a channel group or block, factors, bias."""
UNDERFLOW = 2.0**-149 * 2.0**14
"""Absolute error of one product or sum of denormals. Codes may be unpacked through fp16, whose
exponents make their values up to 2^14 (e2m1) smaller than they are."""
FEW_ROWS = {"bf16": 2}
"""The most rows that are multiplied in float32 on `BF16_PRODUCTS`, by the weight's format; 8 for
others."""
SMALLEST_NORMAL = 2.0**-126


def flushes_denormals(layer: Layer) -> bool:
    """Whether the kernel of `layer` takes denormal factors, products and sums for zero.

    The processor's bfloat16 products do (Intel SDM, VDPBF16PS). They serve where bfloat16 holds
    both factors exactly, unless the products add up in integers.
    """
    few = FEW_ROWS.get(layer.format, 8)
    if device_for("cpu").name not in BF16_PRODUCTS or layer.x.shape[:-1].numel() <= few:
        return False
    if layer.activations == "none":
        return layer.format not in ("fp16", "fp32") and layer.x.dtype == torch.bfloat16
    in_integers = adds_up_in_integers(layer.format, layer.activations)
    return not in_integers or device_for("cpu").name == "cpu:amx"


def adds_up_in_integers(format: str, activations: str) -> bool:
    """Whether products of two mx formats may add up in integers, which mxfp8's never do."""
    weight = FORMATS[format]
    x = weight.of_activations(activations)
    return x is not None and x.is_mx and "mxfp8" not in (format, x.name)


@one_thread()
def expected(layer: Layer) -> tuple[torch.Tensor, torch.Tensor]:
    """The exact result and the largest error allowed, element by element, float64."""
    exact = layer.exact()
    rounding = layer.activations, layer.input_scale, layer.rotation
    x = round_activations(layer.x, layer.format, *rounding).abs()
    weight = reference.dequantize(layer.weight, layer.format, layer.scales).abs()
    size = x @ weight.T
    roundings = layer.x.shape[-1] + ROUNDINGS
    bound = roundings * U / (1 - roundings * U) * size
    bound += layer.x.shape[-1] * UNDERFLOW * _largest_factor(layer)
    if flushes_denormals(layer):
        factors = x.sum(-1, keepdim=True) + weight.sum(-1)
        bound += SMALLEST_NORMAL * (factors + 2 * layer.x.shape[-1] * _largest_factor(layer))
    if layer.bias is not None:
        bound += U * (exact.abs() + layer.bias.double().abs())
    dtype = layer.out_dtype or layer.x.dtype
    bound += ROUNDOFF[dtype] * (exact.abs() + bound) + SMALLEST[dtype]
    return exact, bound


def _largest_factor(layer: Layer) -> float:
    """The largest factor that an accumulator meets; mx scales meet the elements before."""
    scales = layer.scales
    if scales is None or FORMATS[layer.format].is_mx:
        return 1.0
    return max(1.0, float(scales.max()))


def check(case: Case | Layer) -> torch.Tensor:
    """Run a layer and compare it with what is expected; returns its result."""
    layer = make(case) if isinstance(case, Case) else case
    found = layer.run()
    check_result(layer, found)
    return found


def check_result(layer: Layer, found: torch.Tensor) -> None:
    """Assert that `found` is the result of `layer`."""
    exact, bound = expected(layer)
    assert found.dtype == (layer.out_dtype or layer.x.dtype)
    assert found.is_contiguous()
    close("out", found, exact, bound)
