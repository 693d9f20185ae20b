"""Makes the weights that the benchmark multiplies by, in each format."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hk_backend.ops import PackedWeight, pack_weight, quantize_fp8, quantize_mx

DENSE = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
FP8 = "fp8_e4m3fn"
FORMATS = (*DENSE, FP8, f"{FP8}/block", "mxfp8", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4")
"""Names of `--formats`: a weight format; fp8 has a scale per channel, or per 128x128 block."""


@dataclass(frozen=True)
class Weight:
    """A weight. `codes`, `scales`: arguments of `pack_weight`; `packed`: its result."""

    format: str
    codes: torch.Tensor
    scales: torch.Tensor | None
    packed: PackedWeight

    @property
    def input_dtype(self) -> torch.dtype:
        return DENSE.get(self.format, torch.bfloat16)


def make_weight(dense: torch.Tensor, name: str, quantised_activations: bool) -> Weight:
    """The weight `dense` `[n, k]`, quantised to the format `name` of `FORMATS`, and packed."""
    format_, _, granularity = name.partition("/")
    scales: torch.Tensor | None = None
    activations = "none"
    if format_ in DENSE:
        codes = dense.to(DENSE[format_])
    elif format_ == FP8:
        codes, scales = quantize_fp8(dense, granularity or "channel")
        activations = "token_block" if granularity else "token"
    else:
        codes, scales = quantize_mx(dense, format_)
        activations = "mx"
    if not quantised_activations:
        activations = "none"
    packed = pack_weight(codes, format_, scales, activations=activations)
    return Weight(format_, codes, scales, packed)


def copy_of(weight: PackedWeight) -> PackedWeight:
    """A copy of a packed weight in its own memory."""
    tensors = {name: tensor.clone() for name, tensor in weight.tensors().items()}
    return PackedWeight.from_parts(tensors, weight.as_ints())
