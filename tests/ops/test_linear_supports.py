"""The envelope of `linear`: one verdict per reason, and never at odds with what it then does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hk_backend.config import get_config
from hk_backend.ops import LinearRequest, linear, pack_weight, supports_linear
from hk_backend.reference.rotation import ROTATIONS
from hk_backend.terms.weight_format import ACTIVATIONS, FLOAT_DTYPES, FORMATS
from tests.ops.linear_cases import KINDS, Case, make, rotation_of
from tests.ops.strategies import generated

LLAMA = LinearRequest(device_type="cpu", dtype=torch.bfloat16, format="bf16", n=4096, k=14336)


@pytest.mark.parametrize(("format", "activations", "scales"), KINDS)
def test_serves(format: str, activations: str, scales: str, isa: str) -> None:
    facts = FORMATS[format]
    for dtype in FLOAT_DTYPES if facts.is_quantised else (facts.dtype,):
        request = LinearRequest("cpu", dtype, format, 7, 96, activations, scales)
        request = replace(request, rotation=rotation_of(activations))
        for changes in ({}, {"out_dtype": torch.float32}, {"bias_dtype": torch.bfloat16}):
            verdict = supports_linear(replace(request, **changes))
            assert verdict
            assert verdict.why == ""


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "format": ({"format": "int8"}, "'int8'"),
    "dtype": ({"dtype": torch.float64}, "dtype torch.float64"),
    "fp8 x": ({"dtype": torch.float8_e4m3fn}, "torch.float8_e4m3fn"),
    "another float": ({"dtype": torch.float16}, "torch.float16 with a weight in torch.bfloat16"),
    "out_dtype": ({"out_dtype": torch.float8_e4m3fn}, "out_dtype torch.float8_e4m3fn"),
    "bias_dtype": ({"bias_dtype": torch.int32}, "bias_dtype torch.int32"),
    "activations": ({"activations": "token"}, "'token' with a weight in bf16"),
    "unknown activations": ({"format": "fp8_e4m3fn", "activations": "x"}, "'x'"),
    "mx of fp8": ({"format": "fp8_e4m3fn", "activations": "mx"}, "'mx'"),
    "scales": ({"scale_kind": "channel"}, "per channel with a weight in bf16"),
    "mx scales": ({"format": "mxfp4", "scale_kind": "tensor"}, "per tensor"),
    "no output": ({"n": 0}, "0 output"),
    "no input": ({"k": 0}, "0 input"),
    "K of 12": ({"k": 12}, "12 input features are not a positive multiple of 8"),
    "mx K of 40": ({"format": "mxfp6_e3m2", "k": 40}, "multiple of 32"),
    "a rotation of bf16": ({"rotation": 32}, "32 with activations 'none', not 0"),
    "no rotation": (
        {"format": "mxfp4", "activations": "rotated"},
        "0 with activations 'rotated', not one of 32, 64, 128",
    ),
    "a rotation of 48": (
        {"format": "mxfp4", "activations": "mx_rotated", "rotation": 48},
        "48 with activations 'mx_rotated'",
    ),
    "a rotation past K": (
        {"format": "mxfp4", "activations": "mx_rotated", "rotation": 128, "k": 192},
        "128 with K = 192, not a divisor of K",
    ),
    "device": ({"device_type": "cuda"}, "cuda"),
}


@pytest.mark.parametrize(("changes", "why"), REFUSED.values(), ids=REFUSED)
def test_refuses_with_a_reason(changes: dict[str, object], why: str) -> None:
    verdict = supports_linear(replace(LLAMA, **changes))
    assert not verdict
    assert why in verdict.why
    assert "\n" not in verdict.why


@pytest.fixture
def fresh_config(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    monkeypatch.undo()
    get_config.cache_clear()


@pytest.mark.parametrize(
    ("device", "device_type", "why"),
    [
        ("cpu", "cuda", "tensors on cuda with the cpu device"),
        ("emulated:gfx942", "cpu", "no kernels for 'gfx942'"),
        ("hip", "cuda", "HK_DEVICE=hip"),
        ("auto", "xpu", "no device for tensors on xpu"),
    ],
)
def test_devices_that_do_not_serve(
    device: str,
    device_type: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    fresh_config: None,
) -> None:
    monkeypatch.setenv("HK_DEVICE", device)
    get_config.cache_clear()
    verdict = supports_linear(replace(LLAMA, device_type=device_type))
    assert not verdict
    assert why in verdict.why


@given(
    format=st.sampled_from(tuple(FORMATS)),
    activations=st.sampled_from(ACTIVATIONS),
    dtype=st.sampled_from((*FLOAT_DTYPES, torch.float64)),
    out_dtype=st.sampled_from((None, *FLOAT_DTYPES, torch.int32)),
    bias=st.sampled_from((None, *FLOAT_DTYPES, torch.float64)),
    k=st.sampled_from((12, 40, 64)),
    rotation=st.sampled_from((0, 48, *ROTATIONS)),
)
@generated(examples=300)
def test_the_verdict_is_what_the_operator_does(
    format: str,
    activations: str,
    dtype: torch.dtype,
    out_dtype: torch.dtype | None,
    bias: torch.dtype | None,
    k: int,
    rotation: int,
) -> None:
    request = LinearRequest(
        "cpu", dtype, format, 9, k, activations, None, out_dtype, bias, rotation
    )
    layer = make(Case(format, m=2, n=9, k=64))
    facts = FORMATS[format]
    refusal = ""
    try:
        weight = pack_weight(
            layer.weight[:, : facts.row_codes(k)],
            format,
            layer.scales if not facts.is_mx else layer.scales[:, : -(-k // 32)],  # type: ignore[index]
            activations=activations,
            rotation=rotation,
        )
        linear(
            torch.ones(2, k, dtype=dtype),
            weight,
            None if bias is None else torch.ones(9, dtype=bias),
            out_dtype,
        )
    except ValueError as error:
        refusal = str(error)
    verdict = supports_linear(request)
    assert verdict.ok == (not refusal), f"supports_linear(): {verdict}; linear: {refusal!r}"
