"""HK in vLLM's lists of kernels: first, refused with a reason, and behind vLLM's own switches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import vllm.model_executor.kernels.linear as lists
from hk_vllm.linear import kernels
from hk_vllm.linear.install import register_linear
from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.quantization.utils.quant_utils import (
    GroupShape,
    create_fp8_quant_key,
    kFp8Dynamic64Sym,
    kFp8Dynamic128Sym,
    kFp8DynamicTensorSym,
    kFp8DynamicTokenSym,
    kFp8Static128BlockSym,
    kFp8StaticChannelSym,
    kFp8StaticTensorSym,
    kMxfp4Dynamic,
    kMxfp6E2M3Dynamic,
    kMxfp6E2M3Static,
    kMxfp6E3M2Dynamic,
)
from vllm.platforms import PlatformEnum

from tests.integration.hk_vllm.linear_layers import alone, installed

SHAPE = (64, 128)


@pytest.fixture(scope="module", autouse=True)
def rank() -> Iterator[None]:
    with alone():
        yield


@pytest.fixture(autouse=True)
def route(rank: None) -> Iterator[None]:
    with installed():
        yield


def fp8(
    activations: Any = kFp8DynamicTokenSym,
    weight: Any = kFp8StaticChannelSym,
    shape: tuple[int, int] = SHAPE,
) -> Any:
    return lists.init_fp8_linear_kernel(activations, weight, torch.bfloat16, torch.bfloat16, shape)


def test_first_in_every_list_and_once() -> None:
    register_linear()
    for name, kernel in kernels.KERNELS.items():
        for platform in (PlatformEnum.CPU, PlatformEnum.ROCM):
            listed = getattr(lists, name)[platform]
            assert listed[0] is kernel
            assert listed.count(kernel) == 1


def test_the_rest_is_behind_it() -> None:
    before = ["CPUFP8W8A8ScaledMMLinearKernel", "CPUFp8PerTensorScaledMMLinearKernel"]
    listed = lists._POSSIBLE_FP8_KERNELS[PlatformEnum.CPU]
    assert [kernel.__name__ for kernel in listed[1:3]] == before
    assert kernels.HKFp8LinearKernel not in lists._POSSIBLE_FP8_KERNELS[PlatformEnum.CUDA]


def test_chosen() -> None:
    assert isinstance(fp8(), kernels.HKFp8LinearKernel)
    assert isinstance(fp8(kFp8StaticTensorSym, kFp8StaticTensorSym), kernels.HKFp8LinearKernel)
    block = fp8(kFp8Dynamic128Sym, kFp8Static128BlockSym)
    assert isinstance(block, kernels.HKFp8BlockLinearKernel)
    assert isinstance(lists.init_mxfp4_linear_kernel(kMxfp4Dynamic), kernels.HKMxfp4LinearKernel)


def test_a_disabled_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_DISABLED_KERNELS", "HKFp8LinearKernel")
    assert not isinstance(fp8(), kernels.HKKernel)


def test_another_linear_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_current_vllm_config().kernel_config, "linear_backend", "torch")
    assert not isinstance(fp8(), kernels.HKKernel)


# -- refused, with the reason that vLLM shows


def why(kernel: Any, config: Any) -> str:
    ok, reason = kernel.can_implement(config)
    assert not ok
    return str(reason)


def fp8_config(activations: Any, weight: Any, shape: tuple[int, int] = SHAPE) -> Any:
    return lists.FP8ScaledMMLinearLayerConfig(
        weight_quant_key=weight,
        activation_quant_key=activations,
        weight_shape=shape,
        input_dtype=torch.bfloat16,
        out_dtype=torch.bfloat16,
    )


@pytest.mark.parametrize(
    ("kernel", "activations", "weight", "shape", "reason"),
    [
        (
            kernels.HKFp8LinearKernel,
            kFp8DynamicTokenSym,
            kFp8StaticChannelSym,
            (64, 12),
            "12 input features are not a positive multiple of 8",
        ),
        (
            kernels.HKFp8LinearKernel,
            kFp8Dynamic64Sym,
            kFp8StaticTensorSym,
            SHAPE,
            r"activations quantised per .*GroupShape\(row=1, col=64\)",
        ),
        (  # one scale per token that is fixed before there is a token
            kernels.HKFp8LinearKernel,
            create_fp8_quant_key(static=True, group_shape=GroupShape.PER_TOKEN),
            kFp8StaticChannelSym,
            SHAPE,
            "activations quantised per",
        ),
        (
            kernels.HKFp8LinearKernel,
            kFp8DynamicTensorSym,
            kFp8Static128BlockSym,
            SHAPE,
            r"weight scales per .*GroupShape\(row=128, col=128\)",
        ),
        (
            kernels.HKFp8BlockLinearKernel,
            kFp8Dynamic64Sym,
            kFp8Static128BlockSym,
            SHAPE,
            "activations quantised per",
        ),
        (
            kernels.HKFp8BlockLinearKernel,
            kFp8Dynamic128Sym,
            create_fp8_quant_key(static=True, group_shape=GroupShape(64, 128)),
            SHAPE,
            r"weight scales per .*GroupShape\(row=64, col=128\)",
        ),
        (
            kernels.HKWeightOnlyFp8LinearKernel,
            kFp8DynamicTensorSym,
            create_fp8_quant_key(static=True, group_shape=GroupShape(64, 64)),
            SHAPE,
            "weight scales per",
        ),
    ],
)
def test_fp8_that_is_refused(
    kernel: Any, activations: Any, weight: Any, shape: tuple[int, int], reason: str
) -> None:
    import re

    assert re.search(reason, why(kernel, fp8_config(activations, weight, shape)))


def test_mx_that_is_refused() -> None:
    from vllm.model_executor.kernels.linear.mxfp6.base import MxFp6LinearLayerConfig

    other = "activations in another format than the weight's"
    config = lists.MxFp4LinearLayerConfig(activation_quant_key=kMxfp6E2M3Dynamic)
    assert why(kernels.HKMxfp4LinearKernel, config).startswith(other)
    mixed = MxFp6LinearLayerConfig(kMxfp6E2M3Static, kMxfp6E3M2Dynamic)
    assert why(kernels.HKMxfp6LinearKernel, mixed).startswith(other)
    odd = MxFp6LinearLayerConfig(kFp8StaticTensorSym, None)
    assert why(kernels.HKMxfp6LinearKernel, odd).startswith("a weight in")
    batch = lists.Mxfp8LinearLayerConfig(weight_shape=SHAPE, bmm_batch_size=4)
    assert why(kernels.HKMxfp8LinearKernel, batch) == "a batch of matrices"


def test_the_reason_reaches_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where vLLM has no kernel either, its error says why HK refused."""
    with pytest.raises(ValueError, match="HKMxfp4LinearKernel: activations in another format"):
        lists.init_mxfp4_linear_kernel(kMxfp6E2M3Dynamic)
