"""What of SGLang's linear layers another plugin has changed stays: two methods, the computation of
the logits, and the choice of methods."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hk_sglang.linear import head
from hk_sglang.linear.unquantized import REPLACED
from sglang.srt.layers.logits_processor import LogitsProcessor
from sglang.srt.layers.quantization.fp8 import Fp8Config
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod

from hk_backend.engine.linear.heads import KEPT_HEAD
from hk_backend.engine.linear.route import is_attached
from tests.integration.hk_sglang import linear_layers
from tests.integration.hk_sglang.linear_layers import rank, restored
from tests.integration.shared.linear.heads import table, x_of
from tests.integration.shared.linear.layers import left, unloaded, weights
from tests.integration.shared.linear.other_plugin import THEIRS, exchanged, in_both_orders


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    with rank(), restored(), torch.no_grad():
        yield


@in_both_orders
@pytest.mark.parametrize("name", {*REPLACED} - {"apply", "process_weights_after_loading"})
def test_a_method(name: str, first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    exchanged(linear_layers, UnquantizedLinearMethod, name, monkeypatch, first)
    layer = linear_layers.load(unloaded(linear_layers), {"weight": weights()})
    assert left(linear_layers, layer) == f"UnquantizedLinearMethod.{name} is {THEIRS}"


@in_both_orders
def test_a_head(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "_compute_lm_head"
    calls = exchanged(linear_layers, LogitsProcessor, name, monkeypatch, first)
    model = linear_layers.headed(KEPT_HEAD, table())
    assert not is_attached(model.lm_head)
    assert head.pack_head(model.lm_head, model) == f"LogitsProcessor.{name} is {THEIRS}"
    linear_layers.logits(model, x_of())
    assert calls == [name]


@in_both_orders
def test_a_choice_of_methods(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before HK, it chooses the layer's method; after HK, it has HK's to choose."""
    calls = exchanged(linear_layers, Fp8Config, "get_quant_method", monkeypatch, first)
    config = Fp8Config(is_checkpoint_fp8_serialized=True, activation_scheme="dynamic")
    config.packed_modules_mapping = {}
    layer = unloaded(linear_layers)
    method = config.get_quant_method(layer, "model.layers.0.mlp.gate_up_proj")
    assert calls == ["get_quant_method"]
    assert (type(method).__name__ == "HKLinearMethod") == (not first)
    assert not first or layer.hk_left == f"Fp8Config.get_quant_method is {THEIRS}"
