"""`quantize_fp8`: rounds a tensor to FP8 codes, with scales of rows, blocks or the whole tensor."""

from __future__ import annotations

import torch

from hk_backend.devices import device_for
from hk_backend.ops.quantised_rows import as_rows, check_x, rows_of
from hk_backend.ops.registry import declare, define, watched
from hk_backend.terms.checks import bad
from hk_backend.terms.linear_arguments import QuantizeFp8Arguments
from hk_backend.terms.weight_format import FP8_BLOCK, MIN_FP8_SCALE, format_of_fp8

GRANULARITIES = ("token", "tensor", "token_block", "channel", "block")


def quantize_fp8(
    x: torch.Tensor,
    granularity: str = "token",
    scale: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float8_e4m3fn,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rounds `x` to FP8 codes and float32 scales: `x` is about `codes.float() * scales`.

    A dynamic scale is `max(|x|) / qmax`, at least `1 / (512 * qmax)`, with qmax 448 (e4m3fn) or
    224 (e4m3fnuz). Elements are `x * (1 / scale)`, or `x / scale` in blocks with dynamic scales.
    All are computed in float32, saturated at qmax and rounded to nearest even. vLLM's
    `QuantFP8.forward_native` does exactly the same
    (model_executor/layers/quantization/input_quant_fp8.py).

    NaN stays NaN. NaN or an infinity makes a dynamic group NaN; a given scale saturates infinities.
    The bytes are the same with every version of torch, although its own conversion of large numbers
    has changed.

    Args:
        x: `[..., K]`, bfloat16, float16 or float32, any strides.
        granularity: elements that share a scale, and the shape of the scales:
            "token": a row of K, `[..., 1]`; "tensor": all of x, `[1]`;
            "token_block": 128 neighbours of a row, `[..., ceil(K / 128)]`;
            of a weight `[N, K]`: "channel": a row, `[N, 1]`; "block": 128 x 128 elements,
            `[ceil(N / 128), ceil(K / 128)]`.
        scale: float32 scales in that shape, used unchanged; None computes them.
        dtype: float8_e4m3fn or float8_e4m3fnuz.

    Returns:
        codes `[..., K]` in `dtype`, and the scales, float32.

    Raises:
        ValueError: an argument does not fit; the message names it, its value and what would be
            valid.
        DeviceError: the device has no such operator.
    """
    if watched(x):
        result: tuple[torch.Tensor, torch.Tensor] = torch.ops.hk_backend.quantize_fp8(
            x, granularity, scale, dtype
        )
        return result
    return _run(x, granularity, scale, dtype)


def _run(
    x: torch.Tensor, granularity: str, scale: torch.Tensor | None, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    codes, scales = _results(x, granularity, scale, dtype)
    rows = rows_of(x)
    m, k = rows.shape
    by_block = granularity in ("token_block", "block")
    group_rows = {"tensor": m, "block": FP8_BLOCK}.get(granularity, 1)
    group = (group_rows, FP8_BLOCK if by_block else k)
    if scale is not None:
        scales.copy_(scale)
    dynamic = scale is None
    if m == 0:
        if dynamic:  # the one scale of an empty tensor
            scales.fill_(MIN_FP8_SCALE / format_of_fp8(dtype).quantised_max)
        return codes, scales
    arguments = QuantizeFp8Arguments(
        rows, group, by_block and dynamic, dynamic, codes.view(m, k), as_rows(scales)
    )
    device_for(x.device.type).run(arguments)
    return codes, scales


def _results(
    x: torch.Tensor, granularity: str, scale: torch.Tensor | None, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Checks all arguments that a compiler sees; returns codes and scales, not yet written."""
    check_x(x)
    format_of_fp8(dtype)
    if granularity not in GRANULARITIES:
        bad("granularity", repr(granularity), f"one of {', '.join(GRANULARITIES)}")
    if granularity in ("channel", "block") and x.dim() != 2:
        bad("x", tuple(x.shape), f"the shape [N, K] with granularity {granularity!r}")
    blocks = -(-x.shape[-1] // FP8_BLOCK)
    shape = {
        "token": (*x.shape[:-1], 1),
        "channel": (*x.shape[:-1], 1),
        "tensor": (1,),
        "token_block": (*x.shape[:-1], blocks),
        "block": (-(-x.shape[0] // FP8_BLOCK), blocks),
    }[granularity]
    scales = x.new_empty(shape, dtype=torch.float32)
    if scale is not None and (
        scale.shape != scales.shape or scale.dtype != torch.float32 or scale.device != x.device
    ):
        found = f"{scale.dtype} {list(scale.shape)} on {scale.device}"
        bad("scale", found, f"float32 {list(scales.shape)} on {x.device}")
    return x.new_empty(x.shape, dtype=dtype), scales


define(
    "quantize_fp8(Tensor x, str granularity, Tensor? scale, ScalarType dtype) -> (Tensor, Tensor)",
    _run,
    _results,
)
declare(quantize_fp8, QuantizeFp8Arguments)
