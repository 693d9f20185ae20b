"""`pack_weight`: packs a checkpoint's weight once, into the layout that a device's kernels read."""

from __future__ import annotations

import torch

from hk_backend.devices import device_for
from hk_backend.ops.registry import declare
from hk_backend.ops.rotation import rotation_fault
from hk_backend.terms.checks import bad, check_no_grad
from hk_backend.terms.linear_arguments import PackWeightArguments
from hk_backend.terms.packed_weight import PackedWeight
from hk_backend.terms.weight_format import (
    FP8_BLOCK,
    MX_BLOCK,
    Format,
    format_named,
)

E8M0_NAN = 0xFF


class WeightError(ValueError):
    """A tensor of the checkpoint cannot be packed.

    `argument` is "weight", "scales" or "input_scale", so that a caller can name the tensor.
    """

    def __init__(self, argument: str, found: object, expected: str) -> None:
        super().__init__(f"{argument}: {found} is not valid: expected {expected}")
        self.argument = argument


def pack_weight(
    weight: torch.Tensor,
    format: str,
    scales: torch.Tensor | None = None,
    *,
    activations: str = "none",
    input_scale: torch.Tensor | None = None,
    rotation: int = 0,
) -> PackedWeight:
    """Packs a linear layer's weight for the device of its tensor.

    Args:
        weight: `[N, K]` in any strides; K a multiple of 8 (mx: of 32).
            "bf16", "fp16", "fp32": of that dtype. "fp8_e4m3fn", "fp8_e4m3fnuz", and "mxfp8"
            (e4m3fn elements): of that dtype. "mxfp6_e2m3", "mxfp6_e3m2": uint8 `[N, K * 3 / 4]`,
            value i of a row in bits 6i to 6i + 5, the lowest first. "mxfp4" (e2m1): uint8
            `[N, K / 2]`, even values in the low half of a byte.
        scales: factors of the values. FP8: float32, bfloat16 or float16; scalar or `[1]` (tensor),
            `[N]` or `[N, 1]` (channel, also for merged shards with a scale each) or
            `[ceil(N / 128), ceil(K / 128)]` (block). mx: uint8 or float8_e8m0fnu `[N, K / 32]`.
            bf16, fp16, fp32: None.
        activations: how `linear` rounds x. "none": not at all. FP8: "token" (dynamic, one scale
            per token), "tensor" (one for all of x: `input_scale`, else dynamic), "token_block"
            (dynamic, per token and 128 channels). mx formats: "mx" (as the weight, dynamic);
            "rotated" (x is rotated as `rotation` says, and not rounded); "mx_rotated" (rotated,
            then rounded as by "mx"). "mxfp4" also: the name of a wider mx format ("mxfp6_e2m3",
            "mxfp6_e3m2", "mxfp8"), and the same after a rotation ("mxfp6_e2m3_rotated").
        input_scale: static scale of "tensor" activations: one number, float32, bfloat16, float16.
        rotation: neighbours along K that are rotated together, 32, 64 or 128, a divisor of K; 0 for
            activations without a rotation. `weight` must be rotated already
            (hk_backend.reference.rotation). `linear` rotates x in float32
            (hk_backend.reference.butterflies), and the two rotations cancel.

    Raises:
        WeightError: a tensor has a wrong shape, dtype or device. Or a scale is zero, negative,
            infinite or NaN, or so large that the format's largest element exceeds float32 (mx).
        ValueError: a name is not known, the format does not have these activations, or these do
            not allow the rotation.
        DeviceError: the device does not pack this format.
    """
    facts = format_named(format)
    if activations not in facts.activations:
        bad("activations", repr(activations), f"{_either(facts.activations)} with {format}")
    check_no_grad(weight=weight, scales=scales, input_scale=input_scale)
    n, k = _check_weight(weight, facts)
    if fault := rotation_fault(rotation, activations, k):
        bad("rotation", *fault)
    factors = block_scales = mx_scales = None
    if facts.is_mx:
        mx_scales = _mx_scales(scales, facts, n, k, weight.device)
    elif facts.is_fp8:
        factors, block_scales = _fp8_scales(scales, n, k, weight.device)
    elif scales is not None:
        raise WeightError("scales", _described(scales), f"None: {format} has none")
    if facts.has_nan_code and factors is None:
        factors = torch.ones(n, dtype=torch.float32, device=weight.device)
    static = _input_scale(input_scale, activations, weight.device)
    device = device_for(weight.device.type)
    data = weight.new_empty(device.packed_bytes(format, n, k), dtype=torch.uint8)
    device.run(PackWeightArguments(weight, format, n, k, mx_scales, factors, activations, data))
    if factors is not None and bool((factors == 1).all()):
        factors = None
    layout = device.weight_layout
    return PackedWeight(
        data, factors, block_scales, static, format, n, k, activations, layout, rotation
    )


def _check_weight(weight: torch.Tensor, format: Format) -> tuple[int, int]:
    """Checks a weight and returns its sizes (N, K)."""
    if weight.dim() != 2:
        raise WeightError("weight", _described(weight), "two axes, [N, K]")
    if weight.dtype != format.dtype:
        expected = f"{format.dtype} for {format.name}"
        raise WeightError("weight", _described(weight), expected)
    n, codes = weight.shape
    k = codes * 8 // format.bits if format.bits < 8 else codes
    if n < 1:
        raise WeightError("weight", _described(weight), "at least one row")
    if k < 1 or k % format.k_multiple or format.row_codes(k) != codes:
        found = f"{_described(weight)}, that is K = {k}"
        raise WeightError("weight", found, f"K a positive multiple of {format.k_multiple}")
    return n, k


def _fp8_scales(
    scales: torch.Tensor | None, n: int, k: int, device: torch.device
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Checks FP8 scales and returns (factors, block scales), one of them None."""
    blocks = (-(-n // FP8_BLOCK), -(-k // FP8_BLOCK))
    shapes = f"[1], [{n}], [{n}, 1] or [{blocks[0]}, {blocks[1]}]"
    scales = _float_scales("scales", scales, shapes, device)
    shape = tuple(scales.shape)
    if scales.numel() == 1:
        return scales.reshape(1).repeat(n), None
    if shape in ((n,), (n, 1)):
        return scales.reshape(n).clone(), None
    if shape == blocks:
        return None, scales.contiguous().clone()
    raise WeightError("scales", _described(scales), f"the shape {shapes}")


def _mx_scales(
    scales: torch.Tensor | None, format: Format, n: int, k: int, device: torch.device
) -> torch.Tensor:
    """Checks e8m0 scales and returns them as uint8."""
    expected = f"uint8 or float8_e8m0fnu [{n}, {k // MX_BLOCK}] on {device}"
    if scales is None:
        raise WeightError("scales", None, expected)
    if (
        scales.dtype not in (torch.uint8, torch.float8_e8m0fnu)
        or tuple(scales.shape) != (n, k // MX_BLOCK)
        or scales.device != device
    ):
        raise WeightError("scales", _described(scales), expected)
    codes = scales.view(torch.uint8)
    largest = int(codes.max())
    if largest > format.largest_scale_code:
        row, block = divmod(int((codes == largest).flatten().nonzero()[0]), codes.shape[1])
        meaning = "NaN" if largest == E8M0_NAN else f"2^{largest - 127}"
        raise WeightError(
            "scales",
            f"code {largest} ({meaning}) at [{row}, {block}]",
            f"codes up to {format.largest_scale_code}, with which {format.name} fits float32",
        )
    return codes


def _input_scale(
    scale: torch.Tensor | None, activations: str, device: torch.device
) -> torch.Tensor | None:
    if scale is None:
        return None
    if activations != "tensor":
        raise WeightError(
            "input_scale", _described(scale), f"None with activations {activations!r}"
        )
    scale = _float_scales("input_scale", scale, "[1]", device)
    if scale.numel() != 1:
        raise WeightError("input_scale", _described(scale), "one number")
    return scale.reshape(1).clone()


def _float_scales(
    argument: str, scales: torch.Tensor | None, shapes: str, device: torch.device
) -> torch.Tensor:
    """Checks that all scales are positive and finite, and returns them in float32."""
    if scales is None:
        raise WeightError(argument, None, f"float32 {shapes}")
    if scales.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise WeightError(argument, _described(scales), f"float32, bfloat16 or float16 {shapes}")
    if scales.device != device:
        raise WeightError(argument, _described(scales), f"the device of weight, {device}")
    scales = scales.detach().float()
    usable = (scales > 0) & scales.isfinite()
    if not bool(usable.all()):
        place = (~usable).nonzero()[0].tolist()
        found = f"{scales[tuple(place)].item()} at {place}"
        raise WeightError(argument, found, "positive, finite numbers")
    return scales


def _described(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"


def _either(names: tuple[str, ...]) -> str:
    return " or ".join(repr(name) for name in names)


declare(pack_weight, PackWeightArguments)
