"""`look_up`: rows of a packed weight are those of the weight, for every format and rotation."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hk_backend import reference
from hk_backend.ops import look_up
from hk_backend.ops.look_up import supports_look_up
from hk_backend.reference.rotation import hadamard, rotated
from hk_backend.terms.weight_format import FORMATS
from tests.ops.linear_cases import Case, Layer, make
from tests.ops.oracle import ROUNDOFF, SMALLEST, U, close

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
N, K = 150, 192
CASES = [
    *(Case(format, n=N, k=K) for format in ("fp32", "fp16", "bf16")),
    *(Case("fp8_e4m3fn", "none", kind, n=N, k=K) for kind in ("tensor", "channel", "block")),
    Case("fp8_e4m3fnuz", "none", "channel", n=N, k=K - 8),
    *(Case(format, n=N, k=K) for format in FORMATS if FORMATS[format].is_mx),
    *(Case("mxfp4", "rotated", n=N, k=K, rotation=block) for block in (32, 64)),
    Case("mxfp6_e2m3", "mx_rotated", n=N, k=256, rotation=128),
]


def ids_of() -> torch.Tensor:
    """First and last rows of panels, one twice, in two axes."""
    return torch.tensor([[0, N - 1, 31, 32], [63, 64, 64, 7]])


def check(layer: Layer, found: torch.Tensor, dtype: torch.dtype, ids: torch.Tensor) -> None:
    """Assert rows that are exact but for a product and a sum in float32 for each stage, and the
    rounding."""
    exact = reference.dequantize(layer.weight, layer.format, layer.scales)
    size = exact.abs()
    if layer.rotation:
        exact, mixed = rotated(exact, layer.rotation), hadamard(layer.rotation).abs()
        size = (size.unflatten(-1, (-1, layer.rotation)) @ mixed).flatten(-2)
    bound = 12 * U * size
    bound += ROUNDOFF[dtype] * (exact.abs() + bound) + SMALLEST[dtype]
    assert found.dtype == dtype
    assert found.shape == (*ids.shape, exact.shape[1])
    close("rows", found, exact[ids], bound[ids])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows(case: Case, threads: None, isa: str) -> None:
    """Any number of threads finds the same rows."""
    layer = make(case)
    weight = layer.pack()
    for dtype in DTYPES:
        for ids in (ids_of(), *(torch.arange(count) % N for count in (0, 1, 700))):
            found = look_up(ids, weight, dtype)
            check(layer, found, dtype, ids)
            torch.set_num_threads(3)
            assert torch.equal(look_up(ids, weight, dtype), found)
            torch.set_num_threads(1)


def test_a_nan_code() -> None:
    """A row with a NaN code is NaN, no other is."""
    layer = make(Case("mxfp8", n=N, k=K))
    layer.weight.view(torch.uint8)[63, 5] = 0x7F
    found = look_up(ids_of(), layer.pack(), torch.bfloat16)
    assert torch.equal(found.isnan().all(-1), ids_of() == 63)
    assert torch.equal(found.isnan().any(-1), ids_of() == 63)


def test_errors() -> None:
    weight, ids = make(Case("mxfp8", n=N, k=K)).pack(), torch.tensor([1])
    cut = replace(weight, data=weight.data[:-1])
    meta = replace(weight, data=weight.data.to("meta"))
    rotated = replace(weight, activations="rotated", rotation=128)
    for given, packed, dtype, why in (
        (ids.int(), weight, torch.float32, "ids: torch.int32 is not valid: expected int64"),
        (ids, weight, torch.int8, r"out_dtype: torch\.int8 is not valid: expected bfloat16"),
        (ids, cut, torch.float32, r"weight.data: torch.uint8 .* is not valid"),
        (ids, meta, torch.float32, r"ids: cpu is not valid: expected the device of weight, m"),
        (ids, rotated, torch.float32, r"weight\.rotation: 128 with K = 192 is not valid: expec"),
    ):
        with pytest.raises(ValueError, match=why):
            look_up(given, packed, dtype)
    for id in (N, -1):
        with pytest.raises(IndexError, match=f"ids: {id} is not valid: expected 0 to {N - 1}"):
            look_up(torch.tensor([0, id]), weight, torch.float32)


def test_a_gpu_has_no_kernel_for_it(on_gfx950: None) -> None:
    weight = make(Case("fp8_e4m3fn", "none", "channel", n=N, k=K)).pack()
    why = "gfx950 has no kernel that looks up rows of a packed weight"
    assert supports_look_up(weight.layout).why == why
    with pytest.raises(ValueError, match="weight: packed for gfx950 is not valid: expected one th"):
        look_up(ids_of(), weight, torch.float32)


def test_look_up_passes_opcheck() -> None:
    weight = make(Case("mxfp4", n=N, k=K)).pack()
    arguments = (ids_of(), *weight.flat(), torch.bfloat16)
    torch.library.opcheck(torch.ops.hk_backend.look_up.default, arguments)
