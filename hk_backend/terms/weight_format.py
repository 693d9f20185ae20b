"""The number formats of weights and activations of linear layers, by name."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hk_backend.terms.checks import bad

MX_BLOCK = 32
"""Elements along K that share one scale (OCP Microscaling Formats v1.0, section 5.1)."""
FP8_BLOCK = 128
"""Rows and columns of a weight, and channels of a token, that share one FP8 block scale."""
MIN_FP8_SCALE = 1.0 / 512
"""`quantised_max` times the smallest dynamic FP8 scale (vLLM's input_quant_fp8.py)."""


@dataclass(frozen=True, slots=True)
class Format:
    """Facts of a number format.

    Args:
        bits: bits of an element.
        max: the largest finite element.
        max_exponent: floor(log2(max)).
        mantissa_bits: number of explicit mantissa bits.
        dtype: dtype of a checkpoint's weight tensor; uint8 where codes are narrower than a byte.
        quantised_max: the value to which a dynamic scale maps the largest input, and at which
            quantising saturates; 0 for formats that nothing is quantised to.
    """

    name: str
    bits: int
    max: float
    max_exponent: int
    mantissa_bits: int
    dtype: torch.dtype
    quantised_max: float = 0.0

    @property
    def is_fp8(self) -> bool:
        return self.name.startswith("fp8")

    @property
    def is_mx(self) -> bool:
        return self.name.startswith("mx")

    @property
    def is_quantised(self) -> bool:
        return self.is_fp8 or self.is_mx

    @property
    def has_nan_code(self) -> bool:
        """Whether quantised elements can be NaN (FP8, also inside mxfp8)."""
        return self.is_quantised and self.bits == 8

    @property
    def roundings(self) -> tuple[str, ...]:
        """Names of the ways to round activations for such a weight, without a rotation."""
        if self.is_fp8:
            return ("none", "token", "tensor", "token_block")
        return ("none", "mx", *WIDER.get(self.name, ())) if self.is_mx else ("none",)

    @property
    def activations(self) -> tuple[str, ...]:
        """The same, and those after a rotation; see `pack_weight`."""
        rotated = (name for name, after in ROTATED.items() if after in self.roundings)
        return (*self.roundings, *rotated) if self.is_mx else self.roundings

    def of_activations(self, activations: str) -> Format | None:
        """The format that activations are rounded to beside such a weight; None: to none.

        Args:
            activations: one of `activations`.
        """
        rounding = ROTATED.get(activations, activations)
        return None if rounding == "none" else FORMATS.get(rounding, self)

    @property
    def k_multiple(self) -> int:
        """Number that K must be a multiple of."""
        return MX_BLOCK if self.is_mx else 8

    def row_codes(self, k: int) -> int:
        """Elements of `dtype` that hold one row of K values."""
        return k * self.bits // 8 if self.bits < 8 else k

    @property
    def largest_scale_code(self) -> int:
        """The largest e8m0 code whose largest element is still a finite float32."""
        return 127 + 127 - self.max_exponent


_FP8 = torch.float8_e4m3fn
FORMATS: dict[str, Format] = {
    format.name: format
    for format in (
        Format("fp32", 32, torch.finfo(torch.float32).max, 127, 23, torch.float32),
        Format("fp16", 16, 65504.0, 15, 10, torch.float16),
        Format("bf16", 16, torch.finfo(torch.bfloat16).max, 127, 7, torch.bfloat16),
        Format("fp8_e4m3fn", 8, 448.0, 8, 3, _FP8, 448.0),
        # 224, not 240: vLLM quantises to that on GPUs with fnuz (quant_utils.py, get_fp8_min_max)
        Format("fp8_e4m3fnuz", 8, 240.0, 7, 3, torch.float8_e4m3fnuz, 224.0),
        Format("mxfp8", 8, 448.0, 8, 3, _FP8, 448.0),
        Format("mxfp6_e2m3", 6, 7.5, 2, 3, torch.uint8, 7.5),
        Format("mxfp6_e3m2", 6, 28.0, 4, 2, torch.uint8, 28.0),
        Format("mxfp4", 4, 6.0, 2, 1, torch.uint8, 6.0),
    )
}
WIDER = {"mxfp4": ("mxfp6_e2m3", "mxfp6_e3m2", "mxfp8")}
"""Formats of more bits that activations may be rounded to, by the weight's format."""
_MX_ROUNDINGS = ("mx", *dict.fromkeys(name for wider in WIDER.values() for name in wider))
ROTATED = {"rotated": "none", **{f"{rounding}_rotated": rounding for rounding in _MX_ROUNDINGS}}
"""Activations that are rotated first, each with the rounding that follows."""
ACTIVATIONS = ("none", "token", "tensor", "token_block", *_MX_ROUNDINGS, *ROTATED)
FLOAT_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def rotated_activations(rounding: str, rotation: int) -> str:
    """Name of activations with this rounding, one of an mx weight, after a rotation unless 0."""
    if not rotation:
        return rounding
    return next(name for name, after in ROTATED.items() if after == rounding)


def format_named(name: str) -> Format:
    """The facts of a format.

    Raises:
        ValueError: no format has this name.
    """
    found = FORMATS.get(name)
    if found is None:
        bad("format", repr(name), f"one of {', '.join(FORMATS)}")
    return found


def format_of_fp8(dtype: torch.dtype) -> Format:
    """The format of an FP8 dtype.

    Raises:
        ValueError: the dtype is not FP8.
    """
    name = str(dtype).removeprefix("torch.float8_")
    if f"fp8_{name}" not in FORMATS:
        bad("dtype", dtype, "torch.float8_e4m3fn or torch.float8_e4m3fnuz")
    return FORMATS[f"fp8_{name}"]
