"""`linear` on the emulated gfx950 against its definition, for layers as an engine hands them over,
and refusals with their reasons."""

from __future__ import annotations

import itertools
import re

import pytest
import torch

from hk_backend.devices import DeviceError
from hk_backend.ops import LinearRequest, supports
from hk_backend.terms.weight_format import FORMATS
from tests.ops.linear_cases import KINDS, WEIGHT_LAYOUTS, X_LAYOUTS, Case, make, rotation_of
from tests.ops.linear_oracle import check

SERVED = (
    ("bf16", "none", "none"),
    ("fp16", "none", "none"),
    *(kind for kind in KINDS if kind[0] == "fp8_e4m3fn"),
    *(kind for kind in KINDS if FORMATS[kind[0]].is_mx and kind[1] != "rotated"),
)
"""(format, activations, kind of weight scale) that have kernels."""
ROWS = (1, 2, 7, 17, 33, 70)
pytestmark = pytest.mark.usefixtures("on_gfx950")
every_kind = pytest.mark.parametrize(("format", "activations", "scales"), SERVED)


@every_kind
def test_every_kind(format: str, activations: str, scales: str) -> None:
    case = Case(format, activations, scales, n=72, k=160, bias=torch.bfloat16)
    for m in ROWS:
        check(case.but(m=m, seed=m))
    check(case.but(m=3, out_dtype=None, bias=None, static=activations == "tensor"))
    assert make(case.but(m=0)).run().shape == (0, 72)


@every_kind
def test_types_and_tails(format: str, activations: str, scales: str) -> None:
    types = (torch.bfloat16, torch.float16, torch.float32)
    step = max(FORMATS[format].k_multiple, 8 if FORMATS[format].bits == 16 else 16)
    for seed, (out, bias) in enumerate(itertools.product(types, (None, *types))):
        n, k = (1, 33, 130, 64)[seed % 4], (1, 3, 8, 9, 17)[seed % 5] * step
        check(Case(format, activations, scales, 5, n, k, out_dtype=out, bias=bias, seed=seed))


@every_kind
@pytest.mark.parametrize("layout", X_LAYOUTS)
def test_strides(format: str, activations: str, scales: str, layout: str) -> None:
    m = 1 if layout == "one row" else 6
    for weight_layout in WEIGHT_LAYOUTS:
        case = Case(format, activations, scales, m=m, x_layout=layout)
        check(case.but(weight_layout=weight_layout))


@every_kind
def test_split_depth(format: str, activations: str, scales: str) -> None:
    """Few rows of a deep weight: workgroups share the depth of a tile."""
    check(Case(format, activations, scales, m=4, n=64, k=4096))


def request_of(kind: tuple[str, str, str]) -> LinearRequest:
    format, activations, scales = kind
    facts, rotation = FORMATS[format], rotation_of(activations)
    dtype = torch.bfloat16 if facts.is_quantised else facts.dtype
    return LinearRequest("cpu", dtype, format, 64, 64, activations, scales, rotation=rotation)


def test_what_is_served_and_what_is_refused_are_all_kinds() -> None:
    for kind in KINDS:
        verdict = supports(request_of(kind))
        assert bool(verdict) == (kind in SERVED), kind
        assert verdict or re.match(f"gfx950 has no kernels .*{kind[0]} weights", verdict.why)
        if not verdict:
            case = Case(*kind, n=64, k=64, rotation=rotation_of(kind[1]))
            with pytest.raises(DeviceError, match=r"no .*kernels for gfx950"):
                make(case).pack()


def test_rows_that_are_no_multiple_of_16_bytes() -> None:
    request = LinearRequest("cpu", torch.bfloat16, "fp8_e4m3fn", 64, 72, "token", "channel")
    assert supports(request).why == "K = 72 is not a multiple of 16, 16 bytes of a row"
