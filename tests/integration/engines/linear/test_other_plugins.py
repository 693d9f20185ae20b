"""Linear layers, embeddings and quantisation methods that another plugin has changed stay so.

hk_*/test_contract.py tests what only one of the engines has.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hk_backend.engine import loggers
from hk_backend.engine.linear.heads import Head
from hk_backend.engine.linear.route import is_attached
from hk_backend.ops.head_format import IN_HEAD
from tests.integration.adapter import LINEAR
from tests.integration.shared.linear.heads import table
from tests.integration.shared.linear.layers import K, left, unloaded, values, weights
from tests.integration.shared.linear.other_plugin import THEIRS, exchanged, in_both_orders


@pytest.fixture(autouse=True)
def untouched(linear_rank: None) -> Iterator[None]:
    loggers.info_once.cache_clear()
    with LINEAR.restored():
        yield


@in_both_orders
@pytest.mark.parametrize("name", ["apply", "process_weights_after_loading"])
def test_a_method(name: str, first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another plugin's method runs for every layer, and HK leaves the layers to it."""
    calls = exchanged(LINEAR, LINEAR.unquantised()[0], name, monkeypatch, first)
    layer = LINEAR.load(unloaded(LINEAR), {"weight": weights()})
    assert not is_attached(layer)
    why = f"UnquantizedLinearMethod.{name} is {THEIRS}"
    assert left(LINEAR, layer) == why
    LINEAR.forward(layer, values((2, K)))
    assert calls == [name]


@in_both_orders
def test_an_embedding(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another plugin's embedding looks rows up in its table, which stays."""
    calls = exchanged(LINEAR, LINEAR.unquantised()[1], "embedding", monkeypatch, first)
    model = LINEAR.headed(Head("mxfp8", IN_HEAD), table(), tied=True)
    assert model.why_table_stays == (f"UnquantizedEmbeddingMethod.embedding is {THEIRS}")
    found = model.embed_tokens.quant_method.embedding(model.embed_tokens, torch.tensor([3, 7]))
    assert torch.equal(found, table()[[3, 7]])
    assert calls == ["embedding"]


def test_a_quantisation_method_of_the_same_name(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other plugin's method stays, and the log says whose it is."""
    other = LINEAR.register_method(monkeypatch, "hk_fp8")
    with caplog.at_level("WARNING"):
        assert LINEAR.register_linear() == ""
    assert LINEAR.method("hk_fp8") is other
    whose = f"{other.__module__}.OtherConfig, which another plugin registered"
    assert f"--quantization hk_fp8 stays {whose}" in caplog.text
    assert LINEAR.method("hk_mxfp8").__module__.startswith("hk_")
