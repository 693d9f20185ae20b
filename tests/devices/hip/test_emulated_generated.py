"""Generated calls under HK_DEVICE=emulated:gfx950: each is computed rightly, or refused before
anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given

from hk_backend.config import get_config
from hk_backend.ops import AttentionRequest, PagedKV, attention_prefill, supports
from tests.kernels.attention_launch import SPLIT_LAYOUTS
from tests.ops.cases import Case, make, output_of
from tests.ops.oracle import check
from tests.ops.strategies import FP8_DTYPES, cases, generated

BF16, F16 = torch.bfloat16, torch.float16
APART = ("NHD, two tensors", "HND, two tensors")
"""Layouts with unequal distances between rows of keys and rows of values, if their sizes differ."""


@pytest.fixture(autouse=True, scope="module")
def gfx950() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HK_DEVICE", "emulated:gfx950")
        get_config.cache_clear()
        yield
    get_config.cache_clear()


@given(cases())
@generated(examples=40)
def test_any_call_is_served_or_refused(case: Case) -> None:
    """The operator never computes what `supports` refuses, nor refuses what it admits."""
    if case.kv_dtype not in FP8_DTYPES:  # only FP8 has tensors for scales
        case = replace(case, k_scale="off", v_scale="off")
    apart = case.value_size not in (None, case.head_size) and case.block_size % 16
    if case.layout == "padded rows" or (apart and case.layout in APART):
        case = replace(case, layout=None)  # strides, which no request knows (test_attention.py)
    call = make(case)
    verdict = supports(request_of(case, call.get("paged_kv")))
    if verdict:
        check(call, weights_dtype=case.dtype)
        return
    out = output_of(call).fill_(3.0)
    with pytest.raises(ValueError, match=r"^\w+: .* is not valid on this device: expected "):
        attention_prefill(**call, out=out)
    assert (out == 3).all()


def request_of(case: Case, cache: PagedKV | None) -> AttentionRequest:
    """The request with which an engine asks `supports` before the call."""
    layout = case.layout or ""
    rows = not layout or layout.startswith(("NHD", "HND", "one ["))
    rows |= layout.startswith("CPU_ATTN") and case.block_size == 1  # a lone token, in either order
    axes = ("B H D N", "B H N D")
    if layout in SPLIT_LAYOUTS:
        axes = ("B H D/x N x", "B H D N" if layout == SPLIT_LAYOUTS[0] else "B H N/x D x")
    return AttentionRequest(
        device_type="cpu",
        dtype=case.dtype,
        num_heads=case.num_heads,
        num_kv_heads=case.num_kv_heads,
        head_size=case.head_size,
        head_size_v=case.value_size,
        kv_dtype=case.kv_dtype,
        paged=cache is not None,
        block_size=case.block_size if cache else None,
        cache_layouts=None if rows else axes,
        causal=case.causal,
        sliding_window=case.sliding_window,
        logits_soft_cap=case.logits_soft_cap,
        has_sinks=case.sinks,
        has_alibi=case.alibi,
    )
