"""Linear layers whose tensors end, or begin, at a page that may not be touched. A program of its
own: `python -m tests.ops.linear_guard_pages`; an access outside ends it with a signal."""

from __future__ import annotations

import torch

from hk_backend.devices import device_for
from hk_backend.ops import linear, look_up, quantize_fp8, quantize_mx
from hk_backend.terms.linear_arguments import LinearArguments, LookUpArguments
from hk_backend.terms.packed_weight import PackedWeight
from hk_backend.terms.weight_format import FLOAT_DTYPES, FORMATS
from tests.ops import guard_pages
from tests.ops.guard_pages import guarded
from tests.ops.linear_cases import KINDS, Case, Layer, make
from tests.ops.linear_oracle import check
from tests.ops.test_look_up import CASES as ROWS

SIZES = {
    "after": ((1, 1, 1), (3, 17, 5), (18, 33, 9), (5, 40, 8), (20, 16, 4)),
    "before": ((2, 20, 3), (19, 16, 4)),
}
"""(M, N, multiples of what K must be a multiple of)."""
CODES = (("token", "channel"), ("tensor", "channel"), ("token_block", "block"))
"""Activations and weight scales."""


def run(layer: Layer, side: str) -> None:
    """Packing from guarded tensors, and the product of guarded tensors, output included."""
    layer.weight = guarded(layer.weight, side)
    if layer.scales is not None:
        layer.scales = guarded(layer.scales, side)
    packed = layer.pack()
    parts = {name: guarded(tensor, side) for name, tensor in packed.tensors().items()}
    weight = PackedWeight.from_parts(parts, packed.as_ints())
    x = guarded(layer.x, side)
    out = guarded(torch.zeros(len(x), weight.n, dtype=layer.out_dtype or x.dtype), side)
    bias = None if layer.bias is None else guarded(layer.bias, side)
    device_for("cpu").run(LinearArguments(x, weight, bias, out))
    assert torch.equal(out.nan_to_num(), layer.run().nan_to_num())


def run_codes(layer: Layer, side: str) -> None:
    """The product of rows that are FP8 codes already."""
    weight = layer.pack()
    codes, scales = quantize_fp8(layer.x, layer.activations)
    inside = linear(codes, weight, None, torch.float32, scales)
    out = linear(guarded(codes, side), weight, None, torch.float32, guarded(scales, side))
    assert torch.equal(out, inside)


def rows(layer: Layer, side: str) -> None:
    """Of a packed weight, the first and the last."""
    packed = layer.pack()
    parts = {name: guarded(tensor, side) for name, tensor in packed.tensors().items()}
    weight = PackedWeight.from_parts(parts, packed.as_ints())
    ids = guarded(torch.tensor([0, weight.n - 1]), side)
    for dtype in FLOAT_DTYPES:
        out = guarded(torch.zeros(2, weight.k, dtype=dtype), side)
        device_for("cpu").run(LookUpArguments(ids, weight, out))
        assert torch.equal(out.nan_to_num(), look_up(ids, packed, dtype).nan_to_num())


def quantise(dtype: torch.dtype, k: int, side: str) -> None:
    x = guarded(torch.randn(3, k).to(dtype), side)
    for granularity in ("token", "tensor", "token_block", "block"):
        quantize_fp8(x, granularity)
    if k % 32 == 0:
        for name, format in FORMATS.items():
            if format.is_mx:
                quantize_mx(x, name)
                quantize_mx(x, name, rotation=32)


def main() -> None:
    check(Case())  # nothing is proved by a kernel that computes nothing
    for side in ("after", "before"):
        for format, activations, scales in KINDS:
            facts = FORMATS[format]
            for m, n, blocks in SIZES[side]:
                k = blocks * facts.k_multiple
                case = Case(format, activations, scales, m, n, k, bias=torch.bfloat16)
                run(make(case.but(x_dtype=FLOAT_DTYPES[m % 3], out_dtype=None)), side)
            run(make(Case(format, activations, scales, m=3, weight_layout="transposed")), side)
        for rotation in (64, 128):
            for m in (3, 20):
                rotated = Case("mxfp4", "mx_rotated", m=m, n=17, k=384, rotation=rotation)
                run(make(rotated.but(out_dtype=None)), side)
        fp8 = Case("fp8_e4m3fn", "tensor", "channel", m=3, n=17, k=136)
        run(make(fp8.but(static=True, out_dtype=None)), side)
        for activations, scales in CODES:
            run_codes(make(fp8.but(activations=activations, scale_kind=scales)), side)
        for looked_up in ROWS:
            rows(make(looked_up), side)
        for dtype in FLOAT_DTYPES:
            for k in (1, 7, 32, 96, 130):
                quantise(dtype, k, side)
    print(len(guard_pages._maps), "guarded tensors on", device_for("cpu").name)


if __name__ == "__main__":
    main()
