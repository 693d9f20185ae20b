"""Linear layers, kernels and quantisation methods that another plugin has changed: they stay."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch
from hk_vllm.linear import quantization
from hk_vllm.linear.install import register_linear
from hk_vllm.linear.kernels import KERNELS, HKFp8LinearKernel
from vllm.model_executor.kernels import linear as lists
from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import (
    FP8ScaledMMLinearKernel,
)
from vllm.model_executor.layers import linear, utils, vocab_parallel_embedding
from vllm.model_executor.layers import quantization as methods
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod
from vllm.platforms import PlatformEnum

from hk_backend.engine import loggers
from hk_backend.engine.linear.heads import KEPT_HEAD, Head
from hk_backend.engine.linear.route import is_attached
from hk_backend.ops.head_format import IN_HEAD
from tests.integration.hk_vllm import linear_layers
from tests.integration.hk_vllm.restore import restored
from tests.integration.shared.linear.heads import table
from tests.integration.shared.linear.layers import K, left, unloaded, values, weights

LIST = HKFp8LinearKernel.listed_in


@pytest.fixture(autouse=True)
def untouched(linear_rank: None) -> Iterator[None]:
    loggers.info_once.cache_clear()
    with restored():
        yield


def observing(name: str, calls: list[str], patch: pytest.MonkeyPatch, copied: bool) -> None:
    """Exchange vLLM's method `name`; `copied`: with its name and attributes, as functools does."""
    original = getattr(UnquantizedLinearMethod, name)

    def observe(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return original(self, *args, **kwargs)

    function = functools.wraps(original)(observe) if copied else observe
    patch.setattr(UnquantizedLinearMethod, name, function)


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("name", ["apply", "process_weights_after_loading"])
@pytest.mark.parametrize("first", [False, True], ids=["after-hk", "before-hk"])
def test_a_method_that_was_exchanged(
    name: str, first: bool, copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs for every layer, and HK leaves the layers to it."""
    calls: list[str] = []
    if first:
        observing(name, calls, monkeypatch, copied)
    why = register_linear()
    if first and not copied:  # the signature is not vLLM's
        assert "vLLM is not one the plugin knows: " in why
    else:
        assert why == ""
    if not first:
        observing(name, calls, monkeypatch, copied)
    layer = linear_layers.load(unloaded(linear_layers), {"weight": weights()})
    linear_layers.forward(layer, values((2, K)))
    assert calls == [name]
    assert not is_attached(layer)


def test_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    observing("apply", [], monkeypatch, copied=True)
    assert register_linear() == ""
    layer = linear_layers.load(unloaded(linear_layers), {"weight": weights()})
    why = f"UnquantizedLinearMethod.apply is another plugin's: {__name__}.observe"
    assert left(linear_layers, layer) == why


EXCHANGED = {
    "the choice": (linear, "dispatch_unquantized_gemm"),
    "the product": (utils, "cpu_unquantized_gemm"),
    "the preparation": (utils, "dispatch_cpu_unquantized_gemm"),
}


@pytest.mark.parametrize("first", [False, True], ids=["after-hk", "before-hk"])
@pytest.mark.parametrize(("module", "name"), EXCHANGED.values(), ids=EXCHANGED)
def test_a_product_that_was_exchanged(
    module: Any, name: str, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's methods look up what they multiply with: the layer stays with the other plugin."""
    original, calls = getattr(module, name), []

    def exchanged(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return original(*args, **kwargs)

    if first:
        monkeypatch.setattr(module, name, exchanged)
    assert register_linear() == ""
    if not first:
        monkeypatch.setattr(module, name, exchanged)
    layer = linear_layers.load(unloaded(linear_layers), {"weight": weights()})
    linear_layers.forward(layer, values((2, K)))
    assert not is_attached(layer)
    assert f"is another plugin's: {__name__}.exchanged" in left(linear_layers, layer)
    assert calls


def test_a_product_with_arguments_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partial function says itself that it is the standard library's."""

    def exchanged(scale: float, layer: Any, x: Any, weight: Any, bias: Any) -> Any:
        return torch.nn.functional.linear(scale * x, weight, bias)

    monkeypatch.setattr(utils, "cpu_unquantized_gemm", functools.partial(exchanged, 2.0))
    assert register_linear() == ""
    layer = linear_layers.load(unloaded(linear_layers), {"weight": weights()})
    assert not is_attached(layer)
    assert f"is another plugin's: {__name__}.exchanged" in left(linear_layers, layer)


def test_a_head_s_product_that_was_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The LM head's method looks its product up in each call."""

    def exchanged() -> Any:
        return torch.nn.functional.linear

    monkeypatch.setattr(vocab_parallel_embedding, "dispatch_unquantized_gemm", exchanged)
    assert register_linear() == ""
    model = linear_layers.headed(KEPT_HEAD, table(), tied=False)
    assert not is_attached(model.lm_head)


@pytest.mark.parametrize("first", [False, True], ids=["after-hk", "before-hk"])
def test_an_embedding_that_was_exchanged(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks rows up in its table, which stays."""
    if not first:
        assert register_linear() == ""
    original = UnquantizedEmbeddingMethod.embedding
    calls = []

    def embedding(self: Any, layer: Any, input_: torch.Tensor) -> Any:
        calls.append(len(input_))
        return original(self, layer, input_)

    monkeypatch.setattr(UnquantizedEmbeddingMethod, "embedding", embedding)
    if first:
        assert register_linear() == ""
    model = linear_layers.headed(Head("mxfp8", IN_HEAD), table(), tied=True)
    why = f"UnquantizedEmbeddingMethod.embedding is another plugin's: {__name__}.embedding"
    assert model.why_table_stays == why
    found = model.embed_tokens.quant_method.embedding(model.embed_tokens, torch.tensor([3, 7]))
    assert torch.equal(found, table()[[3, 7]])
    assert calls == [2]


class OtherKernel(FP8ScaledMMLinearKernel):  # type: ignore[misc]
    listed_in: ClassVar[str] = LIST


@pytest.mark.parametrize("first", [False, True], ids=["after-hk", "before-hk"])
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


def test_a_kernel_at_the_end_of_a_list() -> None:
    """`register_linear_kernel` puts it there, for layers that nobody before it takes."""
    lists.register_linear_kernel(OtherKernel, PlatformEnum.CPU, "fp8")
    assert register_linear() == ""
    kernels = getattr(lists, LIST)[PlatformEnum.CPU]
    assert (kernels[0], kernels[-1]) == (KERNELS[LIST], OtherKernel)


class OtherConfig(methods.QuantizationConfig):  # type: ignore[misc, name-defined]
    """Another plugin's."""


def test_a_quantisation_method_of_the_same_name(caplog: Any) -> None:
    """It stays, and the log says whose it is."""

    methods.register_quantization_config("hk_fp8")(OtherConfig)
    with caplog.at_level("WARNING", "vllm.hk_vllm.linear"):
        quantization.install()
    assert methods.get_quantization_config("hk_fp8") is OtherConfig
    said = f"--quantization hk_fp8 stays {__name__}.OtherConfig, which another plugin registered"
    assert said in caplog.text
    assert methods.get_quantization_config("hk_mxfp8") is quantization.CONFIGS["hk_mxfp8"]


def test_again_nothing_is_said(caplog: Any) -> None:
    with caplog.at_level("INFO"):
        for _ in range(2):
            assert register_linear() == ""
    assert "another plugin" not in caplog.text
