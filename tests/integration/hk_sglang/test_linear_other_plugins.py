"""Linear layers, heads and quantisation methods that another plugin has changed: they stay."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hk_sglang.linear import head, quantization
from hk_sglang.linear.install import register_linear
from hk_sglang.linear.unquantized import REPLACED
from sglang.srt.layers import quantization as methods
from sglang.srt.layers.logits_processor import LogitsProcessor
from sglang.srt.layers.quantization.fp8 import Fp8Config
from sglang.srt.layers.quantization.unquant import (
    UnquantizedEmbeddingMethod,
    UnquantizedLinearMethod,
)

from hk_backend.engine.linear.heads import KEPT_HEAD, Head
from hk_backend.engine.linear.route import is_attached
from hk_backend.ops.head_format import IN_HEAD
from tests.integration.hk_sglang import linear_layers
from tests.integration.hk_sglang.linear_layers import rank
from tests.integration.hk_sglang.restore import restored
from tests.integration.shared.linear.heads import table, x_of
from tests.integration.shared.linear.layers import left, unloaded, weights

in_both_orders = pytest.mark.parametrize("first", [False, True], ids=["after-hk", "before-hk"])


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    with rank(), restored(), torch.no_grad():
        yield


def exchanged(owner: Any, name: str, patch: pytest.MonkeyPatch, first: bool) -> list[str]:
    """HK's route, and before or after that another plugin's function in place of SGLang's; returns
    the names of its calls."""
    if not first:
        assert register_linear() == ""
    calls, original = [], getattr(owner, name)

    @functools.wraps(original)
    def observe(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return original(*args, **kwargs)

    patch.setattr(owner, name, observe)
    if first:
        assert register_linear() == ""
    return calls


@in_both_orders
@pytest.mark.parametrize("name", REPLACED)
def test_a_method(name: str, first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    exchanged(UnquantizedLinearMethod, name, monkeypatch, first)
    layer = linear_layers.load(unloaded(linear_layers), {"weight": weights()})
    assert not is_attached(layer)
    why = f"UnquantizedLinearMethod.{name} is another plugin's: {__name__}.observe"
    assert left(linear_layers, layer) == why


@in_both_orders
def test_a_head(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = exchanged(LogitsProcessor, "_compute_lm_head", monkeypatch, first)
    model = linear_layers.headed(KEPT_HEAD, table())
    assert not is_attached(model.lm_head)
    assert head.pack_head(model.lm_head, model) == (
        f"LogitsProcessor._compute_lm_head is another plugin's: {__name__}.observe"
    )
    linear_layers.logits(model, x_of())
    assert calls == ["_compute_lm_head"]


@in_both_orders
def test_an_embedding(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    exchanged(UnquantizedEmbeddingMethod, "embedding", monkeypatch, first)
    model = linear_layers.headed(Head("mxfp8", IN_HEAD), table(), tied=True)
    assert model.why_table_stays == (
        f"UnquantizedEmbeddingMethod.embedding is another plugin's: {__name__}.observe"
    )
    assert torch.equal(model.lm_head.weight[: len(table())], table())


@in_both_orders
def test_a_choice_of_methods(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before HK, it chooses the layer's method; after HK, it has HK's to choose."""
    calls = exchanged(Fp8Config, "get_quant_method", monkeypatch, first)
    config = Fp8Config(is_checkpoint_fp8_serialized=True, activation_scheme="dynamic")
    config.packed_modules_mapping = {}
    layer = unloaded(linear_layers)
    method = config.get_quant_method(layer, "model.layers.0.mlp.gate_up_proj")
    assert calls == ["get_quant_method"]
    assert (type(method).__name__ == "HKLinearMethod") == (not first)
    if first:
        why = f"Fp8Config.get_quant_method is another plugin's: {__name__}.observe"
        assert layer.hk_left == why


class OtherConfig:
    """Another plugin's."""


def test_a_quantisation_method_of_the_same_name(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """It stays, and the log says whose it is."""
    monkeypatch.setitem(methods.QUANTIZATION_METHODS, "hk_fp8", OtherConfig)
    quantization.install()
    assert methods.QUANTIZATION_METHODS["hk_fp8"] is OtherConfig
    said = f"--quantization hk_fp8 stays {__name__}.OtherConfig, which another plugin registered"
    assert said in caplog.text
    assert methods.QUANTIZATION_METHODS["hk_mxfp8"] is quantization.CONFIGS["hk_mxfp8"]
