"""A whole model: its layers counted, the route checked, and that nobody saves it."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.linear import loading, model
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.server_args import ServerArgs

from hk_backend.routing.routes import routes
from tests.integration.hk_sglang import linear_layers
from tests.integration.hk_sglang.linear_layers import restored
from tests.integration.shared.linear.layers import K, loaded

pytestmark = pytest.mark.usefixtures("fresh_linear_route")


def test_every_model_that_a_runner_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever loader it comes from."""

    def load_model(self: Any) -> None:
        self.model = torch.nn.ModuleDict({"one": loaded(linear_layers)})

    with restored():
        monkeypatch.setattr(ModelRunner, "load_model", load_model)
        model.install()
        ModelRunner.load_model(runner_of(SimpleNamespace(hf_config=None)))
        assert routes.counters("linear").layers == 1


def runner_of(model_config: Any, device: str = "cpu") -> Any:
    args = ServerArgs(model_path="dummy")
    return SimpleNamespace(model_config=model_config, server_args=args, device=device)


@pytest.mark.parametrize(("device", "served"), [("cpu", True), ("cuda:0", False)])
def test_a_head_is_asked_for_where_the_runner_is(device: str, served: bool) -> None:
    """Before anything is loaded, which has another default device."""
    asks = SimpleNamespace(quantization_config={"quant_method": "fp8", "hk_head": "mxfp8"})
    config = SimpleNamespace(hf_config=asks, vocab_size=96, hidden_size=96, dtype=torch.bfloat16)
    runner, loads = runner_of(config, device), []

    def load_model(runner: Any) -> None:
        runner.model = torch.nn.Module()
        loads.append(runner)

    why = "hk_head 'mxfp8' is not valid: tensors on cuda"
    with nullcontext() if served else pytest.raises(ValueError, match=why):
        model._load(load_model, runner)
    assert bool(loads) is served


@pytest.mark.parametrize("owner", loading.PREPARED)
def test_a_state_that_was_saved(owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang loads it into layers that it has processed before: their own tensors must be there."""
    with restored():
        monkeypatch.setattr(owner, "load_model", lambda self: loaded(linear_layers))
        loading.install()
        layer = owner.load_model(SimpleNamespace())
    why = "weights that SGLang has prepared: a load format of saved states"
    assert model.why_left(layer) == why
    assert layer.weight.shape == (64, K)
    assert model.why_left(loaded(linear_layers)) != why
