"""`linear` on the emulated gfx950 against its definition: what its gemm kernels multiply, from
layers as an engine hands them over; and what the device refuses, with the reason.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from hk_backend.config import get_config
from hk_backend.devices import DeviceError
from hk_backend.ops import LinearRequest, linear, supports_linear
from hk_backend.terms.weight_format import FORMATS, ROTATED
from tests.ops.linear_cases import KINDS, WEIGHT_LAYOUTS, X_LAYOUTS, Case, make
from tests.ops.linear_oracle import check

SERVED = (
    ("bf16", "none", "none"),
    ("fp16", "none", "none"),
    *(kind for kind in KINDS if kind[0] == "fp8_e4m3fn"),
)
"""(format, activations, kind of weight scale) that have kernels."""
TP8 = (
    *((768, 4096), (4096, 512), (3584, 4096), (4096, 1792)),
    *((1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584)),
)
"""(N, K) of qkv, o, gate_up and down of Llama 8B, and of 70B, split over eight ranks."""
QUICK_SHAPES = ((768, 4096), (4096, 512))
ROWS = (1, 2, 7, 17, 33, 70)
pytestmark = pytest.mark.usefixtures("on_gfx950")
every_kind = pytest.mark.parametrize(("format", "activations", "scales"), SERVED)


@every_kind
def test_every_kind(format: str, activations: str, scales: str) -> None:
    case = Case(format, activations, scales, n=72, k=160, bias=torch.bfloat16)
    for m in ROWS:
        check(case.but(m=m, seed=m))
    check(case.but(m=3, out_dtype=None, bias=None))


@every_kind
def test_types_and_tails(format: str, activations: str, scales: str) -> None:
    types = (torch.bfloat16, torch.float16, torch.float32)
    step = 8 if FORMATS[format].bits == 16 else 16
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


@pytest.mark.parametrize(
    "shape",
    [
        shape if shape in QUICK_SHAPES else pytest.param(shape, marks=pytest.mark.slow)
        for shape in TP8
    ],
)
@pytest.mark.parametrize("kind", [("bf16", "none", "none"), ("fp8_e4m3fn", "token", "channel")])
def test_a_rank_of_eight(shape: tuple[int, int], kind: tuple[str, str, str]) -> None:
    """Layers of Llama 8B and 70B in full size, few rows of them."""
    n, k = shape
    assert supports_linear(LinearRequest("cpu", torch.bfloat16, kind[0], n, k, *kind[1:]))
    check(Case(*kind, m=3, n=n, k=k, out_dtype=torch.bfloat16, bias=torch.bfloat16))


def test_a_static_scale() -> None:
    check(Case("fp8_e4m3fn", "tensor", "channel", static=True))


def test_no_rows() -> None:
    layer = make(Case("bf16", m=0))
    assert layer.run().shape == (0, layer.weight.shape[0])


def test_a_row_that_is_not_finite_stays_alone() -> None:
    for format, activations in (("bf16", "none"), ("fp8_e4m3fn", "token")):
        layer = make(Case(format, activations, m=40, out_dtype=torch.float32))
        clean = layer.run()
        layer.x[7, 3], layer.x[9, 5] = torch.inf, torch.nan
        found = layer.run()
        assert not found[[7, 9]].isfinite().all(dim=1).any()
        rest = [row for row in range(40) if row not in (7, 9)]
        assert torch.equal(found[rest], clean[rest])


def test_a_nan_code_of_the_weight_makes_its_column_nan() -> None:
    for activations in ("none", "token"):
        layer = make(Case("fp8_e4m3fn", activations, "channel", n=40))
        layer.weight.view(torch.uint8)[11, 2] = 0xFF
        found = layer.run()
        assert found[:, 11].isnan().all()
        assert found[:, [n for n in range(40) if n != 11]].isfinite().all()


def test_a_weight_that_was_packed_for_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = make(Case("bf16"))
    packed = layer.pack()
    assert packed.layout == "gfx950"
    monkeypatch.setenv("HK_DEVICE", "cpu")
    get_config.cache_clear()
    with pytest.raises(ValueError, match="weight: packed for gfx950 is not valid"):
        linear(layer.x, packed)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (("fp32", "none", "none"), "no kernels for fp32 weights"),
        (("mxfp8", "mx", "mx"), "no kernels for mxfp8 weights"),
        (("fp8_e4m3fnuz", "token", "channel"), "no kernels for fp8_e4m3fnuz weights"),
    ],
)
def test_what_is_refused(kind: tuple[str, str, str], why: str) -> None:
    format, activations, scales = kind
    dtype = FORMATS[format].dtype if not FORMATS[format].is_quantised else torch.bfloat16
    request = LinearRequest("cpu", dtype, format, 64, 64, activations, scales)
    verdict = supports_linear(request)
    assert not verdict
    assert why in verdict.why


@pytest.mark.parametrize("activations", ROTATED)
def test_rotations_are_refused(activations: str) -> None:
    case = Case("mxfp4", activations, k=64, rotation=64)
    request = LinearRequest("cpu", torch.bfloat16, "mxfp4", 40, 64, activations, rotation=64)
    assert supports_linear(request).why.startswith("gfx950 has no kernels for mxfp4 weights")
    with pytest.raises(DeviceError, match=r"no linear \(mxfp4\) kernels for gfx950"):
        make(case).pack()


def test_what_is_served_and_what_is_refused_are_all_kinds() -> None:
    def verdict(format: str, activations: str, scales: str) -> bool:
        facts = FORMATS[format]
        dtype = torch.bfloat16 if facts.is_quantised else facts.dtype
        return bool(
            supports_linear(LinearRequest("cpu", dtype, format, 64, 64, activations, scales))
        )

    assert tuple(kind for kind in KINDS if verdict(*kind)) == tuple(
        kind for kind in KINDS if kind in SERVED
    )


def test_rows_that_are_no_multiple_of_16_bytes() -> None:
    request = LinearRequest("cpu", torch.bfloat16, "fp8_e4m3fn", 64, 72, "token", "channel")
    assert supports_linear(request).why == "K = 72 is not a multiple of 16, 16 bytes of a row"
