"""Unquantised layers of either engine: packed and released, or left with a reason; and whole models
of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hk_backend.engine.linear.route import is_attached
from hk_backend.engine.linear.saving import SaveError
from hk_backend.engine.strict import StrictError
from hk_backend.routing.routes import routes
from tests.integration.shared.linear.devices import in_dtypes
from tests.integration.shared.linear.engine import LinearEngine
from tests.integration.shared.linear.layers import (
    WIDTHS,
    K,
    assert_computes,
    left,
    loaded,
    unloaded,
    values,
    weights,
)

pytestmark = pytest.mark.usefixtures("fresh_linear_route")


@in_dtypes
def test_a_layer_is_packed_and_its_weight_released(
    engine: LinearEngine, device: str, dtype: torch.dtype
) -> None:
    """Processed again there is nothing to do; new weights are packed into the buffers that compiled
    graphs hold."""
    layer = loaded(engine, dtype)
    assert is_attached(layer)
    assert layer.weight.shape == (0,)
    assert layer.weight.dtype == dtype
    layer.quant_method.process_weights_after_loading(layer)
    assert layer.hk_left == ""
    assert_computes(layer, torch.cat(weights(dtype=dtype)))
    assert_computes(layer, torch.cat(weights(dtype=dtype)), values((64,), dtype))
    address = layer.hk_data.data_ptr()
    engine.reload(layer, {"weight": weights(seed=5, dtype=dtype)})
    assert layer.hk_data.data_ptr() == address
    assert_computes(layer, torch.cat(weights(seed=5, dtype=dtype)))
    with pytest.raises(AssertionError):
        assert_computes(layer, torch.cat(weights(dtype=dtype)))


# -- left to the engine


@pytest.mark.parametrize(
    ("weight", "why"),
    [
        (values((64, 1, 4)), "a weight with 3 axes"),
        (torch.ones(64, K, dtype=torch.int8), "a weight in torch.int8"),
    ],
    ids=["axes", "dtype"],
)
def test_a_weight_of_another_kind(engine: LinearEngine, weight: torch.Tensor, why: str) -> None:
    layer = unloaded(engine)
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    layer.quant_method.process_weights_after_loading(layer)
    assert left(engine, layer) == why


def test_a_route_that_is_off(engine: LinearEngine) -> None:
    routes.disable("linear", "because")
    assert left(engine, loaded(engine)) == "because"


def test_a_method_of_somebody_else(engine: LinearEngine) -> None:
    layer = unloaded(engine)

    class Theirs(type(layer.quant_method)):  # type: ignore[misc]
        def apply(self, layer: Any, x: Any, bias: Any = None) -> Any:
            return torch.nn.functional.linear(x, layer.weight, bias)

    layer.quant_method = Theirs()
    engine.load(layer, {"weight": weights()})
    assert left(engine, layer) == "Theirs does its own multiplication"


# -- whole models: counted, checked, and not saved

ODD = "12 input features are not a positive multiple of 8"
EXPERTS = "experts of a mixture: HK has no kernel for them"


def odd(engine: LinearEngine) -> Any:
    """A layer that HK leaves."""
    layer = unloaded(engine, k=12)
    return engine.load(layer, {"weight": [values((width, 12)) for width in WIDTHS]})


def test_layers_are_counted_with_their_reasons(
    engine: LinearEngine, environment: Callable[..., None]
) -> None:
    layers = {"one": loaded(engine), "two": loaded(engine), "odd": odd(engine)}
    engine.account(torch.nn.ModuleDict(layers | {"experts": engine.experts()}))
    counters = routes.counters("linear")
    assert counters.layers == 2
    assert counters.layers_left == {ODD: 1, EXPERTS: 1}
    environment(HK_STRICT="1")
    for name, layer, why in (("odd", odd(engine), ODD), ("experts", engine.experts(), EXPERTS)):
        with pytest.raises(StrictError, match=f"HK_STRICT=1: {name} would fall back: {why}"):
            engine.account(torch.nn.ModuleDict({"one": layers["one"], name: layer}))


def test_packed_layers_are_not_saved(engine: LinearEngine, tmp_path: Path) -> None:
    """The engine would write a folder that nothing can load; it writes one of others."""
    model = torch.nn.ModuleDict({"one": loaded(engine)})
    for saver in engine.savers():
        with pytest.raises(SaveError, match="1 linear layers have weights that HK packed"):
            saver.save_model(model, str(tmp_path), None)
    assert not list(tmp_path.iterdir())
    other = torch.nn.ModuleDict({"table": torch.nn.Embedding(8, 8)})
    engine.savers()[0].save_model(other, str(tmp_path))
    assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"]
