"""The envelopes: one verdict per reason, and never at odds with what the operators then do."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hk_backend.config import get_config
from hk_backend.ops import (
    AttentionRequest,
    LinearRequest,
    attention_prefill,
    linear,
    pack_weight,
    supports,
)
from hk_backend.reference.rotation import ROTATIONS
from hk_backend.terms.weight_format import ACTIVATIONS, FLOAT_DTYPES, FORMATS
from tests.ops.cases import Case, make
from tests.ops.linear_cases import Case as Linear
from tests.ops.linear_cases import make as make_layer
from tests.ops.strategies import DTYPES, FP8_DTYPES, generated

LLAMA = AttentionRequest(
    device_type="cpu", dtype=torch.bfloat16, num_heads=32, num_kv_heads=8, head_size=128
)


FNUZ = torch.float8_e4m3fnuz
REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "dtype": ({"dtype": torch.float64}, "torch.float64"),
    "fp8 query": ({"dtype": torch.float8_e4m3fn}, "torch.float8_e4m3fn"),
    "kv dtype": ({"kv_dtype": torch.float16}, "torch.float16"),
    "fp8 of another kind": ({"kv_dtype": FNUZ}, "torch.float8_e4m3fnuz"),
    "head size 12": ({"head_size": 12}, "head_size 12"),
    "head size 0": ({"head_size": 0}, "head_size 0"),
    "head size 264": ({"head_size": 264}, "head_size 264"),
    "values of 60 channels": ({"head_size_v": 60}, "values of 60 channels"),
    "values of 512 channels": ({"head_size": 192, "head_size_v": 512}, "values of 512 channels"),
    "ratio": ({"num_heads": 9, "num_kv_heads": 2}, "9 query heads"),
    "no KV heads": ({"num_kv_heads": 0}, "0 KV heads"),
    "no heads": ({"num_heads": 0}, "0 query heads"),
    "window": ({"sliding_window": 0}, "sliding_window 0"),
    "negative cap": ({"logits_soft_cap": -1.0}, "logits_soft_cap -1.0"),
    "cap nan": ({"logits_soft_cap": math.nan}, "logits_soft_cap nan"),
    "cap inf": ({"logits_soft_cap": math.inf}, "logits_soft_cap inf"),
    "block size": ({"paged": True, "block_size": 0}, "block_size 0"),
    "no such device": ({"device_type": "cuda"}, "cuda"),
}


@pytest.mark.parametrize(
    ("device", "tensors", "why"),
    [
        ("cpu", "cuda", "tensors on cuda with the cpu device"),
        ("emulated:gfx942", "cpu", "no kernels for 'gfx942'"),
        ("hip", "cuda", "HK_DEVICE=hip"),
        ("auto", "xpu", "no device for tensors on xpu"),
    ],
)
def test_devices_that_do_not_serve(
    device: str, tensors: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors elsewhere and devices that this build lacks have a reason, not a crash."""
    monkeypatch.setenv("HK_DEVICE", device)
    get_config.cache_clear()
    for verdict in (
        supports(replace(LLAMA, device_type=tensors)),
        supports(replace(LAYER, device_type=tensors)),
    ):
        assert not verdict
        assert why in verdict.why


@pytest.fixture(autouse=True)
def fresh_config(monkeypatch: pytest.MonkeyPatch) -> object:
    yield
    monkeypatch.undo()
    get_config.cache_clear()


@given(
    heads=st.sampled_from(((4, 2), (3, 2), (2, 2), (0, 1), (2, 4))),
    facts=st.fixed_dictionaries(
        {
            "dtype": st.sampled_from((*DTYPES, torch.float64)),
            "kv_dtype": st.sampled_from((torch.float32, torch.bfloat16, *FP8_DTYPES, FNUZ)),
            "head_size": st.sampled_from((8, 12, 64, 256, 264)),
            "value_size": st.sampled_from((None, None, 64, 60)),
            "layout": st.sampled_from((None, "NHD, two tensors", "HND, two tensors")),
            "block_size": st.sampled_from((7, 16)),
            "causal": st.booleans(),
            "sliding_window": st.sampled_from((None, 5, 0, -1)),
            "logits_soft_cap": st.sampled_from((None, 0.0, 2.0, -2.0, math.inf)),
            "sinks": st.booleans(),
            "alibi": st.booleans(),
        }
    ),
)
@generated(examples=400)
def test_the_verdict_is_what_the_operator_does(
    heads: tuple[int, int], facts: dict[str, Any]
) -> None:
    case = Case(((3, 9),), *heads, **facts)
    call = make(case)
    paged = case.layout is not None
    request = AttentionRequest(
        *("cpu", case.dtype, *heads, case.head_size),
        head_size_v=case.value_size,
        kv_dtype=case.kv_dtype,
        paged=paged,
        block_size=case.block_size if paged else None,
        causal=case.causal,
        sliding_window=case.sliding_window,
        logits_soft_cap=case.logits_soft_cap,
        has_sinks=case.sinks,
        has_alibi=case.alibi,
    )
    verdict = supports(request)
    refusal = ""
    try:
        attention_prefill(**call)
    except ValueError as error:
        refusal = str(error)
    assert verdict.ok == (not refusal), f"{verdict}; the operator: {refusal!r}"


LAYER = LinearRequest(device_type="cpu", dtype=torch.bfloat16, format="bf16", n=4096, k=14336)


MXFP4: dict[str, object] = {"format": "mxfp4"}
ROTATED = MXFP4 | {"activations": "mx_rotated"}
REFUSED_LAYERS: dict[str, tuple[dict[str, object], str]] = {
    "format": ({"format": "int8"}, "'int8'"),
    "dtype": ({"dtype": torch.float64}, "dtype torch.float64"),
    "fp8 x": ({"dtype": torch.float8_e4m3fn}, "torch.float8_e4m3fn"),
    "another float": ({"dtype": torch.float16}, "torch.float16 with a weight in torch.bfloat16"),
    "out_dtype": ({"out_dtype": torch.float8_e4m3fn}, "out_dtype torch.float8_e4m3fn"),
    "bias_dtype": ({"bias_dtype": torch.int32}, "bias_dtype torch.int32"),
    "activations": ({"activations": "token"}, "'token' with a weight in bf16"),
    "unknown activations": ({"format": "fp8_e4m3fn", "activations": "x"}, "'x'"),
    "mxfp4 beside mxfp8": ({"format": "mxfp8", "activations": "mxfp4"}, "'mxfp4'"),
    "mxfp6 beside mxfp8": ({"format": "mxfp8", "activations": "mxfp6_e2m3"}, "'mxfp6_e2m3'"),
    "mx of fp8": ({"format": "fp8_e4m3fn", "activations": "mx"}, "'mx'"),
    "scales": ({"scale_kind": "channel"}, "per channel with a weight in bf16"),
    "mx scales": ({"format": "mxfp4", "scale_kind": "tensor"}, "per tensor"),
    "no output": ({"n": 0}, "0 output"),
    "no input": ({"k": 0}, "0 input"),
    "K of 12": ({"k": 12}, "12 input features are not a positive multiple of 8"),
    "mx K of 40": ({"format": "mxfp6_e3m2", "k": 40}, "multiple of 32"),
    "a rotation of bf16": ({"rotation": 32}, "32 with activations 'none', not 0"),
    "no rotation": (MXFP4 | {"activations": "rotated"}, "0 with activations 'rotated', not one of"),
    "a rotation of 48": (ROTATED | {"rotation": 48}, "48 with activations 'mx_rotated'"),
    "a rotation past K": (ROTATED | {"rotation": 128, "k": 192}, "128 with K = 192, not a divisor"),
    "device": ({"device_type": "cuda"}, "cuda"),
}


REASONS = [
    *((LLAMA, *row) for row in REFUSED.values()),
    *((LAYER, *row) for row in REFUSED_LAYERS.values()),
]


@pytest.mark.parametrize(("request_", "changes", "why"), REASONS, ids=[*REFUSED, *REFUSED_LAYERS])
def test_refuses_with_a_reason(request_: Any, changes: dict[str, object], why: str) -> None:
    verdict = supports(replace(request_, **changes))
    assert not verdict
    assert why in verdict.why
    assert "\n" not in verdict.why


@given(
    format=st.sampled_from(tuple(FORMATS)),
    k=st.sampled_from((12, 40, 64)),
    facts=st.fixed_dictionaries(
        {
            "activations": st.sampled_from(ACTIVATIONS),
            "out_dtype": st.sampled_from((None, *FLOAT_DTYPES, torch.int32)),
            "bias_dtype": st.sampled_from((None, *FLOAT_DTYPES, torch.float64)),
            "rotation": st.sampled_from((0, 48, *ROTATIONS)),
        }
    ),
    dtype=st.sampled_from((*FLOAT_DTYPES, torch.float64)),
)
@generated(examples=300)
def test_the_verdict_is_what_linear_does(
    format: str, k: int, facts: dict[str, Any], dtype: torch.dtype
) -> None:
    request = LinearRequest("cpu", dtype, format, 9, k, **facts)
    layer = make_layer(Linear(format, m=2, n=9, k=64))
    facts = FORMATS[format]
    refusal = ""
    try:
        weight = pack_weight(
            layer.weight[:, : facts.row_codes(k)],
            format,
            layer.scales if not facts.is_mx else layer.scales[:, : -(-k // 32)],  # type: ignore[index]
            activations=request.activations,
            rotation=request.rotation,
        )
        linear(
            torch.ones(2, k, dtype=dtype),
            weight,
            None if request.bias_dtype is None else torch.ones(9, dtype=request.bias_dtype),
            request.out_dtype,
        )
    except ValueError as error:
        refusal = str(error)
    verdict = supports(request)
    assert verdict.ok == (not refusal), f"supports(): {verdict}; linear: {refusal!r}"
