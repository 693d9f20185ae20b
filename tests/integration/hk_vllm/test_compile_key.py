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


EXTRAS = pytest.mark.parametrize(
    "extra", [dict, lambda: {"mine": 1}, Extra], ids=["none", "dict", "object"]
)


def config_with(additional_config: Any) -> Any:
    config = vllm_config()
    object.__setattr__(config, "additional_config", additional_config)
    return config


@EXTRAS
def test_key_differs_with_a_route_and_without(
    hk_cpu: Any, stock_cpu: Any, extra: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a layer that is refused no route is active: what stock vLLM compiled is valid."""

    def key_with(backend: Any) -> str:
        config = config_with(extra())
        Layer(backend, config=config)
        key: str = config.compute_hash()
        return key

    stock, mine = key_with(stock_cpu), key_with(hk_cpu)
    assert stock != mine
    assert (key_with(stock_cpu), key_with(hk_cpu)) == (stock, mine)
    monkeypatch.setattr("vllm.envs.VLLM_BATCH_INVARIANT", True)
    assert key_with(hk_cpu) == key_with(stock_cpu)


@EXTRAS
def test_each_set_of_routes_has_its_own_key(extra: Any) -> None:
    add_route("attention")  # without a current configuration
    keys = set()
    for routes in ([], ["attention"], ["linear"], ["attention", "linear"]):
        config = config_with(extra())
        with constructing(config, config.model_config.dtype):
            for route in routes * 2:
                add_route(route)
        keys.add(config.compute_hash())
        assert getattr(config.additional_config, "answer", 42) == 42, "an object stays usable"
    assert len(keys) == 4
