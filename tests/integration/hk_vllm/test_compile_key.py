"""The active routes in vLLM's compile-cache key."""

from __future__ import annotations

from typing import Any

import pytest
from hk_vllm.compile_key import add_route

from tests.integration.hk_vllm.attention.batch import constructing, vllm_config

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
