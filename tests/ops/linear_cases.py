"""One linear layer and its input as a small description, and the tensors that it stands for.

Whatever must not matter holds NaN, always: rows and channels between those of `x`, and between the
rows of a weight that is a view. A test that only looks at numbers thereby also tests what is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from hk_backend import ops, reference
from hk_backend.ops.linear_envelope import scale_kinds
from hk_backend.reference.rotation import ROTATIONS
from hk_backend.terms.weight_format import FORMATS, FP8_BLOCK, MX_BLOCK, ROTATED

X_LAYOUTS = ("contiguous", "rows apart", "columns apart", "transposed", "three axes", "one row")
WEIGHT_LAYOUTS = ("contiguous", "transposed", "rows apart")


@dataclass(frozen=True)
class Case:
    """`static`: "tensor" activations with a given scale. `x_layout`, `weight_layout`: names above.
    `rotation`: the block of rotated activations; 0 is 32 there.

    `x_dtype` is that of the weight for bf16, fp16 and fp32, whatever it says here.
    """

    format: str = "bf16"
    activations: str = "none"
    scale_kind: str = ""
    m: int = 5
    n: int = 40
    k: int = 96
    x_dtype: torch.dtype = torch.bfloat16
    out_dtype: torch.dtype | None = torch.float32
    bias: torch.dtype | None = None
    static: bool = False
    x_layout: str = "contiguous"
    weight_layout: str = "contiguous"
    magnitude: float = 1.5
    rotation: int = 0
    seed: int = 0

    def but(self, **changes: Any) -> Case:
        return replace(self, **changes)


@dataclass
class Layer:
    """The arguments of `pack_weight` and `linear` that a case stands for."""

    x: torch.Tensor
    weight: torch.Tensor
    format: str
    scales: torch.Tensor | None
    activations: str = "none"
    input_scale: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    out_dtype: torch.dtype | None = None
    rotation: int = 0

    def pack(self) -> ops.PackedWeight:
        return ops.pack_weight(
            self.weight,
            self.format,
            self.scales,
            activations=self.activations,
            input_scale=self.input_scale,
            rotation=self.rotation,
        )

    def run(self) -> torch.Tensor:
        return ops.linear(self.x, self.pack(), self.bias, self.out_dtype)

    def exact(self) -> torch.Tensor:
        return reference.linear(
            self.x,
            self.weight,
            self.format,
            self.scales,
            activations=self.activations,
            input_scale=self.input_scale,
            bias=self.bias,
            rotation=self.rotation,
        )


KINDS = tuple(
    (name, activations, scales)
    for name, format in FORMATS.items()
    for activations in format.activations
    for scales in scale_kinds(format)
)
"""Every (format, activations, kind of weight scale) that the operator has."""


def make(case: Case) -> Layer:
    """The layer that `case` describes; the same case always gives the same tensors."""
    random = torch.Generator().manual_seed(case.seed)
    format = FORMATS[case.format]
    x_dtype = case.x_dtype if format.is_quantised else format.dtype
    x = (torch.randn(case.m, case.k, generator=random) * case.magnitude).to(x_dtype)
    if case.m and case.k > 8:
        x[case.m // 2, 7] *= 50  # an outlier, as real activations have
    kind = case.scale_kind or scale_kinds(format)[-1]
    weight, scales = random_weight(case.format, case.n, case.k, kind, random)
    return Layer(
        laid_out(x, case.x_layout),
        laid_out(weight, case.weight_layout),
        case.format,
        scales,
        case.activations,
        torch.tensor([0.037]) if case.static else None,
        None if case.bias is None else torch.randn(case.n, generator=random).to(case.bias),
        case.out_dtype,
        case.rotation or rotation_of(case.activations),
    )


def rotation_of(activations: str) -> int:
    """The least rotation that a layer with such activations may have."""
    return ROTATIONS[0] if activations in ROTATED else 0


def random_weight(
    format: str, n: int, k: int, kind: str, random: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A weight as a checkpoint holds it, and its scales, about normal with deviation 1."""
    values = torch.randn(n, k, generator=random)
    facts = FORMATS[format]
    if facts.is_mx:
        spread = torch.randint(-3, 4, (n, k // MX_BLOCK), generator=random)
        values *= (2.0**spread).repeat_interleave(MX_BLOCK, 1)
        return reference.quantize_mx(values, format)
    if not facts.is_fp8:
        return values.to(facts.dtype), None
    codes = (values * 60).clamp(-facts.max, facts.max).to(facts.dtype)
    shape = {"tensor": (1,), "channel": (n, 1), "block": (-(-n // FP8_BLOCK), -(-k // FP8_BLOCK))}[
        kind
    ]
    return codes, (torch.rand(shape, generator=random) + 0.5) / 60


def laid_out(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values with other strides, NaN (or all bits set) between them."""
    m, k = tensor.shape
    if layout == "contiguous":
        return tensor
    if layout == "transposed":
        return tensor.T.contiguous().T
    if layout == "rows apart":
        view = hostile((m + 2, k + 24), tensor.dtype)[1 : m + 1, 8 : 8 + k]
    elif layout == "columns apart":
        view = hostile((m, 2 * k + 1), tensor.dtype)[:, 1::2]
    elif layout == "three axes":
        first = next(d for d in (3, 2, 1) if m % d == 0)
        view = hostile((first, m // first + 1, k + 8), tensor.dtype)[:, : m // first, :k]
    elif layout == "one row" and m == 1:
        view = hostile((k + 2,), tensor.dtype)[1:-1]
    else:
        return tensor
    view.copy_(tensor.reshape(view.shape))
    return view


def hostile(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of NaN, or of bytes with every bit set where the dtype has no NaN."""
    if dtype.is_floating_point and dtype.itemsize > 1:
        return torch.full(shape, math.nan, dtype=dtype)
    return (
        torch.full((math.prod(shape) * dtype.itemsize,), 0xFF, dtype=torch.uint8)
        .view(dtype)
        .view(shape)
    )
