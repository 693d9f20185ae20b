"""What of vLLM's linear layers another plugin has changed stays: products, and lists of kernels."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch
from hk_vllm.linear.install import register_linear
from hk_vllm.linear.kernels import KERNELS, HKFp8LinearKernel
from vllm.model_executor.kernels import linear as lists
from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import (
    FP8ScaledMMLinearKernel,
)
from vllm.model_executor.layers import linear, utils
from vllm.platforms import PlatformEnum

from hk_backend.engine import loggers
from hk_backend.engine.linear.route import is_attached
from tests.integration.hk_vllm import linear_layers
from tests.integration.hk_vllm.restore import restored
from tests.integration.shared.linear.layers import K, left, unloaded, values, weights
from tests.integration.shared.linear.other_plugin import THEIRS, exchanged, in_both_orders

LIST = HKFp8LinearKernel.listed_in


@pytest.fixture(autouse=True)
def untouched(linear_rank: None) -> Iterator[None]:
    loggers.info_once.cache_clear()
    with restored():
        yield


def loaded() -> Any:
    """A layer that HK leaves to the other plugin."""
    layer = linear_layers.load(unloaded(linear_layers), {"weight": weights()})
    assert not is_attached(layer)
    return layer


@in_both_orders
@pytest.mark.parametrize(
    ("module", "name"),
    [
        (linear, "dispatch_unquantized_gemm"),
        (utils, "cpu_unquantized_gemm"),
        (utils, "dispatch_cpu_unquantized_gemm"),
    ],
    ids=["the choice", "the product", "the preparation"],
)
def test_a_product(module: Any, name: str, first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's methods look up what they multiply with: the layer stays with the other plugin."""
    calls = exchanged(linear_layers, module, name, monkeypatch, first)
    layer = loaded()
    linear_layers.forward(layer, values((2, K)))
    assert f"is {THEIRS}" in left(linear_layers, layer)
    assert calls


def test_a_product_with_arguments_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partial function says itself that it is the standard library's."""

    def exchanged(scale: float, layer: Any, x: Any, weight: Any, bias: Any) -> Any:
        return torch.nn.functional.linear(scale * x, weight, bias)

    monkeypatch.setattr(utils, "cpu_unquantized_gemm", functools.partial(exchanged, 2.0))
    assert register_linear() == ""
    assert f"is another plugin's: {__name__}.exchanged" in left(linear_layers, loaded())


class OtherKernel(FP8ScaledMMLinearKernel):  # type: ignore[misc]
    listed_in: ClassVar[str] = LIST


@in_both_orders
@pytest.mark.parametrize("platform", [PlatformEnum.CPU, PlatformEnum.ROCM])
def test_a_kernel_at_the_head_of_a_list(first: bool, platform: Any, caplog: Any) -> None:
    """Whoever put it there wants it asked first; HK comes next."""
    kernels = getattr(lists, LIST).setdefault(platform, [])
    with caplog.at_level("INFO", "vllm.hk_vllm.linear"):
        if first:
            kernels.insert(0, OtherKernel)
        assert register_linear() == ""
        if not first:
            kernels.insert(0, OtherKernel)
        register_linear()
    assert kernels[:2] == [OtherKernel, KERNELS[LIST]]
    said = f"{LIST}: {__name__}.OtherKernel, which another plugin put first, stays before HK's"
    assert (said in caplog.text) or not first
