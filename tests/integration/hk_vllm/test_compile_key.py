"""The active routes in vLLM's compile-cache key."""

from __future__ import annotations

from typing import Any

import pytest
from hk_vllm.compile_key import add_route

from tests.integration.hk_vllm.attention.batch import Layer, constructing, vllm_config

pytestmark = pytest.mark.usefixtures("small")


class Extra:
    """An `additional_config` that brings its own hash, as vLLM allows."""

    answer = 42

    def compute_hash(self) -> str:
        return "extra"


def key_with(backend: Any, additional_config: Any = None) -> str:
    """The key of a configuration under which a layer of `backend` was constructed."""
    config = vllm_config()
    if additional_config is not None:
        object.__setattr__(config, "additional_config", additional_config)
    Layer(backend, config=config)
    key: str = config.compute_hash()
    return key


@pytest.mark.parametrize(
    "extra", [dict, lambda: {"mine": 1}, Extra], ids=["none", "dict", "object"]
)
def test_key_differs_with_a_route_and_without(hk_cpu: Any, stock_cpu: Any, extra: Any) -> None:
    stock, mine = key_with(stock_cpu, extra()), key_with(hk_cpu, extra())
    assert stock != mine
    assert key_with(stock_cpu, extra()) == stock
    assert key_with(hk_cpu, extra()) == mine


def test_key_of_a_refused_layer_is_stock(
    hk_cpu: Any, stock_cpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No route is active: what stock vLLM compiled is valid."""
    stock = key_with(stock_cpu)
    monkeypatch.setattr("vllm.envs.VLLM_BATCH_INVARIANT", True)
    assert key_with(hk_cpu) == stock


@pytest.mark.parametrize("extra", [dict, Extra])
def test_each_set_of_routes_has_its_own_key(extra: Any) -> None:
    keys = set()
    for routes in ([], ["attention"], ["linear"], ["attention", "linear"]):
        config = vllm_config()
        object.__setattr__(config, "additional_config", extra())
        with constructing(config, config.model_config.dtype):
            for route in routes * 2:
                add_route(route)
        keys.add(config.compute_hash())
    assert len(keys) == 4


def test_an_object_stays_usable() -> None:
    config = vllm_config()
    object.__setattr__(config, "additional_config", Extra())
    with constructing(config, config.model_config.dtype):
        add_route("attention")
    assert config.additional_config.answer == 42


def test_without_a_current_configuration() -> None:
    add_route("attention")
