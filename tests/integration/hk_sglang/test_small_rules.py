"""Rules that whole engines meet, on SGLang's classes alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hk_sglang import ranks
from hk_sglang.attention.install import BUILDER
from hk_sglang.contract import check_engine
from hk_sglang.linear.stock import _loader_for
from sglang.srt.layers.attention import attention_registry
from sglang.srt.model_executor.model_runner_components import attention_backend_setup
from sglang.srt.model_loader.loader import ShardedStateLoader

from hk_backend.engine.evidence import ALONE
from tests.integration.hk_sglang.attention.engine import routed
from tests.integration.hk_sglang.linear_layers import installed


@pytest.mark.parametrize(("size", "alone"), [(1, True), (2, False)])
def test_a_group_of_one_rank_is_alone(
    size: int, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parallel = SimpleNamespace(tp_group=SimpleNamespace(world_size=size))
    monkeypatch.setattr(ranks, "get_parallel", lambda: parallel)
    assert (ranks.tensor_parallel() is ALONE) == alone


def test_each_route_has_a_contract_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_registry, "register_attention_backend", lambda path: None)
    assert not check_engine("attention")
    assert check_engine("linear")


@pytest.mark.parametrize(
    ("scheme", "loader"),
    [
        (None, "weight_loader"),
        (SimpleNamespace(requires_weight_loader_v2=False), "weight_loader"),
        (SimpleNamespace(requires_weight_loader_v2=True), "weight_loader_v2"),
    ],
)
def test_a_stand_in_has_the_loader_that_sglang_would_choose(scheme: Any, loader: str) -> None:
    layer = SimpleNamespace(weight_loader="weight_loader", weight_loader_v2="weight_loader_v2")
    layer.scheme = scheme
    assert _loader_for(SimpleNamespace(), layer) == loader


def test_a_factory_that_comes_after_hk_is_routed_when_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with routed():
        factories = attention_registry.ATTENTION_BACKENDS
        monkeypatch.setattr(attention_backend_setup, "ATTENTION_BACKENDS", factories)
        attention_registry.register_attention_backend("late")(lambda runner: "built")
        build = getattr(attention_backend_setup, BUILDER)
        runner = SimpleNamespace(prefill_attention_backend_str="other")
        assert build(model_runner=runner, backend_str="late", init_new_workspace=False) == "built"
        assert hasattr(factories["late"], "hk_original")


def test_saving_needs_no_loader() -> None:
    """SGLang asks its class, others a loader: what is called is static before HK and after."""
    with installed():
        assert isinstance(vars(ShardedStateLoader)["save_model"], staticmethod)
