"""The envelope: one verdict per reason, and never at odds with what the operator then does."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hk_backend.config import get_config
from hk_backend.ops import AttentionRequest, attention_prefill, supports_attention
from tests.ops.cases import Case, make
from tests.ops.layouts import LAYOUTS
from tests.ops.strategies import DTYPES, FP8_DTYPES, HEAD_RATIOS, generated

LLAMA = AttentionRequest(
    device_type="cpu", dtype=torch.bfloat16, num_heads=32, num_kv_heads=8, head_size=128
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kv_dtype", [None, *FP8_DTYPES])
@pytest.mark.parametrize("heads", HEAD_RATIOS)
def test_serves(
    heads: tuple[int, int], kv_dtype: torch.dtype | None, dtype: torch.dtype, isa: str
) -> None:
    request = replace(LLAMA, num_heads=heads[0], num_kv_heads=heads[1], kv_dtype=kv_dtype)
    for head_size in range(8, 257, 8):
        verdict = supports_attention(replace(request, dtype=dtype, head_size=head_size))
        assert verdict
        assert verdict.why == ""


SERVED = {
    "values as wide as keys": {"head_size_v": 128},
    "values narrower": {"head_size": 192, "head_size_v": 128},
    "values wider": {"head_size": 64, "head_size_v": 256},
    "paged": {"paged": True, "block_size": 16},
    "odd blocks": {"paged": True, "block_size": 7},
    "not causal": {"causal": False},
    "window": {"sliding_window": 1},
    "cap": {"logits_soft_cap": 30.0},
    "cap off": {"logits_soft_cap": 0.0},
    "sinks": {"has_sinks": True},
    "alibi": {"has_alibi": True},
    "same kv dtype": {"kv_dtype": torch.bfloat16},
}


@pytest.mark.parametrize("changes", SERVED.values(), ids=SERVED)
def test_serves_every_feature(changes: dict[str, object]) -> None:
    assert supports_attention(replace(LLAMA, **changes))


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "dtype": ({"dtype": torch.float64}, "torch.float64"),
    "integer dtype": ({"dtype": torch.int8}, "torch.int8"),
    "fp8 query": ({"dtype": torch.float8_e4m3fn}, "torch.float8_e4m3fn"),
    "kv dtype": ({"kv_dtype": torch.float16}, "torch.float16"),
    "kv int8": ({"kv_dtype": torch.int8}, "torch.int8"),
    "fp8 of another kind": ({"kv_dtype": torch.float8_e4m3fnuz}, "torch.float8_e4m3fnuz"),
    "head size 12": ({"head_size": 12}, "head_size 12"),
    "head size 0": ({"head_size": 0}, "head_size 0"),
    "head size 264": ({"head_size": 264}, "head_size 264"),
    "head size 576": ({"head_size": 576, "head_size_v": 512}, "head_size 576"),
    "values of 60 channels": ({"head_size_v": 60}, "values of 60 channels"),
    "values of 512 channels": ({"head_size": 192, "head_size_v": 512}, "values of 512 channels"),
    "ratio": ({"num_heads": 9, "num_kv_heads": 2}, "9 query heads"),
    "no KV heads": ({"num_kv_heads": 0}, "0 KV heads"),
    "no heads": ({"num_heads": 0}, "0 query heads"),
    "window": ({"sliding_window": 0}, "sliding_window 0"),
    "window of vLLM's off": ({"sliding_window": -1}, "sliding_window -1"),
    "negative cap": ({"logits_soft_cap": -1.0}, "logits_soft_cap -1.0"),
    "cap nan": ({"logits_soft_cap": math.nan}, "logits_soft_cap nan"),
    "cap inf": ({"logits_soft_cap": math.inf}, "logits_soft_cap inf"),
    "block size": ({"paged": True, "block_size": 0}, "block_size 0"),
    "no such device": ({"device_type": "cuda"}, "cuda"),
}


@pytest.mark.parametrize(("changes", "value"), REFUSED.values(), ids=REFUSED)
def test_refuses_with_a_reason(changes: dict[str, object], value: str) -> None:
    verdict = supports_attention(replace(LLAMA, **changes))
    assert not verdict
    assert value in verdict.why
    assert "\n" not in verdict.why


@pytest.mark.parametrize("device", ["cpu", "cpu:portable"])
def test_the_cpu_device_refuses_tensors_elsewhere(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, device)
    verdict = supports_attention(replace(LLAMA, device_type="cuda"))
    assert not verdict
    assert "cuda" in verdict.why
    assert "cpu" in verdict.why


@pytest.mark.parametrize("device", ["hip", "emulated:gfx942"])
def test_a_device_that_this_build_lacks_is_a_reason_not_a_crash(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, device)
    verdict = supports_attention(LLAMA)
    assert not verdict
    assert device in verdict.why


def configure(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """HK_DEVICE for this test (the fixture `fresh_config` forgets it afterwards)."""
    monkeypatch.setenv("HK_DEVICE", device)
    get_config.cache_clear()


@pytest.fixture(autouse=True)
def fresh_config(monkeypatch: pytest.MonkeyPatch) -> object:
    yield
    monkeypatch.undo()
    get_config.cache_clear()


@given(
    dtype=st.sampled_from((*DTYPES, torch.float64)),
    kv_dtype=st.sampled_from((torch.float32, torch.bfloat16, *FP8_DTYPES, torch.float8_e4m3fnuz)),
    heads=st.sampled_from(((4, 2), (3, 2), (2, 2), (0, 1), (2, 4))),
    head_size=st.sampled_from((8, 12, 64, 256, 264)),
    layout=st.sampled_from((None, "NHD, two tensors", "one [B,H,N,2D]")),
    window=st.sampled_from((None, 5, 0, -1)),
    cap=st.sampled_from((None, 0.0, 2.0, -2.0, math.inf)),
)
@generated(examples=300)
def test_the_verdict_is_what_the_operator_does(
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    heads: tuple[int, int],
    head_size: int,
    layout: str | None,
    window: int | None,
    cap: float | None,
) -> None:
    assert layout is None or layout in LAYOUTS
    case = Case(lengths=((3, 9),), num_heads=heads[0], num_kv_heads=heads[1], layout=layout)
    case = case.but(head_size=head_size, dtype=dtype, kv_dtype=kv_dtype)
    call = make(case.but(sliding_window=window, logits_soft_cap=cap))
    request = AttentionRequest(
        device_type="cpu",
        dtype=dtype,
        kv_dtype=kv_dtype,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_size=head_size,
        paged=layout is not None,
        block_size=None if layout is None else case.block_size,
        sliding_window=window,
        logits_soft_cap=cap,
    )
    verdict = supports_attention(request)
    refusal = ""
    try:
        attention_prefill(**call)
    except ValueError as error:
        refusal = str(error)
    assert verdict.ok == (not refusal), f"{verdict}; the operator: {refusal!r}"
