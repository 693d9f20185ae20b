"""Generated calls under HK_DEVICE=emulated:gfx950: served right, or refused before anything ran."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given

from hk_backend.config import get_config
from hk_backend.ops import AttentionRequest, PagedKV, attention_prefill, supports_attention
from tests.kernels.attention_launch import SPLIT_LAYOUTS
from tests.ops.cases import Case, make, output_of
from tests.ops.layouts import LAYOUTS
from tests.ops.oracle import check
from tests.ops.strategies import FP8_DTYPES, cases, generated

BF16, F16 = torch.bfloat16, torch.float16
APART = ("NHD, two tensors", "HND, two tensors")
"""Rows of keys and of values of another size are not equally far apart."""
READABLE = [name for name in LAYOUTS if name.startswith(("NHD", "HND", "one [", "ROCM", "AITER"))]


@pytest.fixture(autouse=True, scope="module")
def gfx950() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HK_DEVICE", "emulated:gfx950")
        get_config.cache_clear()
        yield
    get_config.cache_clear()


def within(case: Case) -> Case:
    """The nearest case that the kernels compute."""
    unlike = case.value_size not in (None, case.head_size)
    readable = [name for name in READABLE if not (unlike and LAYOUTS[name].one_size)]
    layout = case.layout and readable[case.seed % len(readable)]
    narrow = layout is not None and case.kv_dtype in FP8_DTYPES
    unmasked = narrow and case.kv_dtype is torch.float8_e5m2
    most = max(case.head_size, case.value_size or 0)
    own = next(size for size in (64, 128, 256) if most <= size)
    capped = None if narrow and (unmasked or own != 128) else case.logits_soft_cap
    alibi = case.alibi and case.causal and not capped and not narrow
    own = min(own, 128) if unmasked or alibi else own
    number = {"off": "off", "number": "number", "one": "number", "per head": "off"}
    known = dict(zip(number, number, strict=True)) if narrow else number
    of_one_size = narrow or capped or alibi
    return case.but(
        head_size=own if of_one_size else case.head_size,
        value_size=None if of_one_size else case.value_size,
        dtype=F16 if case.dtype is F16 else BF16,
        kv_dtype=case.kv_dtype if narrow else None,
        layout=layout,
        block_size=case.block_size if case.block_size % 16 == 0 else 16,
        sliding_window=case.sliding_window if case.causal and not unmasked else None,
        logits_soft_cap=capped,
        sinks=case.sinks and not unmasked,
        alibi=alibi,
        k_scale=known[case.k_scale],
        v_scale=known[case.v_scale],
    )


@given(cases().map(within))
@generated(examples=30)
def test_any_call_within_the_envelope(case: Case) -> None:
    check(make(case), weights_dtype=case.dtype)


@given(cases())
@generated(examples=40)
def test_any_call_is_served_or_refused(case: Case) -> None:
    """The operator never computes what `supports` refuses, nor refuses what it admits."""
    if case.kv_dtype not in FP8_DTYPES:  # whose scales alone are tensors
        case = replace(case, k_scale="off", v_scale="off")
    apart = case.value_size not in (None, case.head_size) and case.block_size % 16
    if case.layout == "padded rows" or (apart and case.layout in APART):
        case = replace(case, layout=None)  # strides, which no request knows (test_cache_form.py)
    call = make(case)
    verdict = supports_attention(request_of(case, call.get("paged_kv")))
    if verdict:
        check(call, weights_dtype=case.dtype)
        return
    out = output_of(call).fill_(3.0)
    with pytest.raises(ValueError, match=r"^\w+: .* is not valid on this device: expected "):
        attention_prefill(**call, out=out)
    assert (out == 3).all()


def request_of(case: Case, cache: PagedKV | None) -> AttentionRequest:
    """What an engine would ask before the call."""
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
