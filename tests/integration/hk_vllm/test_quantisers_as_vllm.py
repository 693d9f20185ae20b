"""The reference of the quantisers gives what vLLM computes in torch; for compressed-tensors see
tests/quantize/test_formats.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8
from vllm.model_executor.layers.quantization.utils.quant_utils import GroupShape

from hk_backend import reference
from hk_backend.terms.weight_format import FLOAT_DTYPES
from tests.ops.test_quantize import hard_rows, reciprocal_ties

GROUPS = {
    "token": GroupShape.PER_TOKEN,
    "tensor": GroupShape.PER_TENSOR,
    "token_block": GroupShape(1, 128),
}


@pytest.fixture(scope="module", autouse=True)
def vllm_config() -> Iterator[None]:
    with set_current_vllm_config(VllmConfig()):
        yield


def inputs(dtype: torch.dtype) -> Iterator[torch.Tensor]:
    rows = hard_rows(dtype)
    yield rows
    yield rows[rows.isfinite().all(1)]
    yield torch.stack([reciprocal_ties(float(a)) for a in range(3, 256, 2)]).to(dtype)


def same(found: torch.Tensor, want: torch.Tensor) -> bool:
    """Equal numbers, signs of zero included; NaN is any NaN."""
    found, want = found.float(), want.float().reshape(found.shape)
    equal = (found == want) & (found.signbit() == want.signbit())
    return bool((equal | (found.isnan() & want.isnan())).all())


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("granularity", GROUPS)
def test_dynamic_fp8(granularity: str, dtype: torch.dtype) -> None:
    quantise = QuantFP8(static=False, group_shape=GROUPS[granularity])
    for x in inputs(dtype):
        codes, scales = reference.quantize_fp8(x, granularity)
        want_codes, want_scales = quantise.forward_native(x)
        assert same(scales, want_scales)
        assert same(codes, want_codes)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_static_fp8(dtype: torch.dtype) -> None:
    quantise = QuantFP8(static=True, group_shape=GroupShape.PER_TENSOR)
    for scale in (torch.tensor([0.0371]), torch.tensor([3.0])):
        for x in inputs(dtype):
            codes, _ = reference.quantize_fp8(x, "tensor", scale)
            want, _ = quantise.forward_native(x, scale)
            assert same(codes, want)
