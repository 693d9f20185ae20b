"""The reference of the quantisers gives what vLLM and compressed-tensors compute in torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8
from compressed_tensors.quantization.utils.mxfp_utils import generate_mx_scales
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


def test_mxfp4_scales_of_compressed_tensors() -> None:
    """Their rounding is "even"; scales of ordinary magnitudes (theirs wrap around below 2^-125)."""
    x = torch.randn(50, 320, generator=torch.Generator().manual_seed(0)) * 10
    x[::3] = x[::3].round()
    largest = x.view(50, 10, 32).abs().amax(-1)
    _, scales = reference.quantize_mx(x, "mxfp4", "even")
    assert torch.equal(scales, generate_mx_scales(largest).to(torch.uint8))


def test_mxfp4_codes_of_compressed_tensors() -> None:
    """The nibbles of a byte in the same order, and the same code for each value."""
    values = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    random = torch.Generator().manual_seed(1)
    x = values[torch.randint(0, 8, (40, 64), generator=random)]
    x[:, ::32] = 4.0  # so that the scale is 1
    x *= torch.randint(0, 2, x.shape, generator=random) * 2 - 1
    codes, scales = reference.quantize_mx(x, "mxfp4")
    assert (scales == 127).all()
    assert torch.equal(codes, pack_fp4_to_uint8(x))
