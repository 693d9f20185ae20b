"""A whole model: its layers counted, the route checked, and that nobody saves it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.linear import loading, model
from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.model_loader.loader import RemoteModelLoader, ShardedStateLoader
from sglang.srt.server_args import ServerArgs

from hk_backend import reference
from hk_backend.engine.linear.route import RoutedLinearError
from hk_backend.engine.linear.saving import SaveError
from hk_backend.engine.strict import StrictError
from hk_backend.routing.routes import routes
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.hk_sglang.linear_layers import (
    environment,
    installed,
    load,
    merged,
    rank,
    restored,
)
from tests.integration.shared.linear.layers import values

K, WIDTHS = 72, [40, 24]


@pytest.fixture(autouse=True)
def route() -> Iterator[None]:
    with rank(), installed(), torch.no_grad():
        yield


def layer_of(k: int = K) -> Any:
    layer = merged(None, torch.bfloat16, k, WIDTHS, prefix="model.gate_up_proj")
    return load(layer, {"weight": [values((width, k)) for width in WIDTHS]})


def experts() -> Any:
    layer = object.__new__(FusedMoE)
    torch.nn.Module.__init__(layer)
    return layer


def some_model() -> torch.nn.ModuleDict:
    """Two layers that HK serves, one that it leaves, and experts."""
    layers = {name: layer_of() for name in ("one", "two")}
    return torch.nn.ModuleDict(layers | {"odd": layer_of(12), "experts": experts()})


ODD = "12 input features are not a positive multiple of 8"
EXPERTS = "experts of a mixture: HK has no kernel for them"


def test_layers_are_counted_with_their_reasons() -> None:
    model.account(some_model())
    counters = routes.counters("linear")
    assert counters.layers == 2
    assert counters.layers_left == {ODD: 1, EXPERTS: 1}


@pytest.mark.parametrize(("name", "why"), [("odd", ODD), ("experts", EXPERTS)])
def test_strict(name: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, HK_STRICT="1")
    with pytest.raises(StrictError, match=f"HK_STRICT=1: {name} would fall back: {why}"):
        model.account(torch.nn.ModuleDict({name: some_model()[name]}))


def test_every_model_that_a_runner_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever loader it comes from."""

    def load_model(self: Any) -> None:
        self.model = some_model()

    with restored():
        monkeypatch.setattr(ModelRunner, "load_model", load_model)
        model.install()
        ModelRunner.load_model(runner_of(SimpleNamespace(hf_config=None)))
        assert routes.counters("linear").layers == 2


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
        runner.model = some_model()
        loads.append(runner)

    why = "hk_head 'mxfp8' is not valid: tensors on cuda"
    with nullcontext() if served else pytest.raises(ValueError, match=why):
        model._load(load_model, runner)
    assert bool(loads) is served


@pytest.mark.parametrize("strict", [True, False])
def test_check(strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """HK_CHECK compares calls with what the layer was packed from, and acts on a difference."""
    environment(monkeypatch, HK_CHECK="1", HK_STRICT=str(int(strict)))
    layer = layer_of()
    x, weight = values((5, K), seed=9), torch.cat([values((width, K)) for width in WIDTHS])
    truth, limit = reference.linear(x, weight, "bf16"), tolerance(torch.bfloat16)
    assert largest_error(layer(x)[0], truth) <= limit < largest_error(1.02 * truth, truth)
    assert routes.counters("linear").checked_calls == 1
    layer.hk_data.copy_(layer.hk_data.roll(64))
    if strict:
        with pytest.raises(RoutedLinearError, match=r"exceeds the tolerance .* model.gate_up_proj"):
            layer(x)
        return
    out, _ = layer(x)
    assert largest_error(out, truth) <= limit
    assert not routes.verdict("linear")


@pytest.mark.parametrize("owner", loading.PREPARED)
def test_a_state_that_was_saved(owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang loads it into layers that it has processed before: their own tensors must be there."""
    with restored():
        monkeypatch.setattr(owner, "load_model", lambda self: layer_of())
        loading.install()
        layer = owner.load_model(SimpleNamespace())
    why = "weights that SGLang has prepared: a load format of saved states"
    assert model.why_left(layer) == why
    assert layer.weight.shape == (64, K)
    assert model.why_left(layer_of()) != why


@pytest.mark.parametrize("owner", [ShardedStateLoader, RemoteModelLoader])
def test_packed_layers_are_not_saved(owner: Any, tmp_path: Path) -> None:
    """SGLang would write a folder that nothing can load."""
    with pytest.raises(SaveError, match="1 linear layers have weights that HK packed"):
        owner.save_model(torch.nn.ModuleDict({"one": layer_of()}), str(tmp_path), None)
    assert not list(tmp_path.iterdir())


def test_a_model_without_packed_layers_is_saved(tmp_path: Path) -> None:
    ShardedStateLoader.save_model(torch.nn.ModuleDict({"odd": layer_of(12)}), str(tmp_path))
    assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"]
