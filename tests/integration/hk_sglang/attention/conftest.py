"""What the tests of SGLang's attention share: configuration, counters, routed factories."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hk_sglang.attention.install import BUILDER, register_attention
from sglang.srt.layers.attention import attention_registry
from sglang.srt.model_executor.model_runner_components import attention_backend_setup
from sglang.srt.runtime_context import get_context

from hk_backend.engine import cache_proof
from hk_backend.routing.routes import RouteCounters, routes
from tests.integration.hk_sglang.attention import batch, engine
from tests.integration.shared.attention.engine import AttentionEngine


@pytest.fixture(autouse=True)
def all_are_small(small: None) -> None:
    """Every test of this folder computes batches of a few tokens."""


@pytest.fixture
def published() -> Iterator[Callable[..., None]]:
    """Publish a configuration, as a scheduler process does, with fields of the caller's."""
    active: list[Any] = []

    def publish(**fields: Any) -> None:
        while active:
            active.pop().restore()
        override = get_context().override_server_args(device="cpu", **fields)
        override.install()
        active.append(override)

    publish()
    yield publish
    while active:
        active.pop().restore()


@pytest.fixture
def counters(
    published: Any, environment: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RouteCounters]:
    """The attention route's counters, from zero, with the factories routed."""
    routes.reset()
    environment(HK_BACKEND="attention")
    factories = dict(attention_registry.ATTENTION_BACKENDS)
    monkeypatch.setattr(attention_registry, "ATTENTION_BACKENDS", factories)
    monkeypatch.setattr("tests.integration.hk_sglang.attention.batch.ATTENTION_BACKENDS", factories)
    monkeypatch.setattr(cache_proof, "_proven", set())
    build = getattr(attention_backend_setup, BUILDER)
    monkeypatch.setattr(attention_backend_setup, BUILDER, build)  # put back at the end
    assert register_attention() == ""
    yield routes.counters("attention")
    routes.reset()


@pytest.fixture(scope="session")
def attention() -> AttentionEngine:
    """What the shared tests of the attention route ask."""
    return engine


@pytest.fixture
def stand_ins(counters: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch_native under the names of backends that need a GPU or a kernel package."""
    stock = batch.ATTENTION_BACKENDS["torch_native"].hk_original
    for name in ("aiter", "triton", "intel_amx", "flex_attention", "dsa"):
        monkeypatch.setitem(batch.ATTENTION_BACKENDS, name, stock)
    assert register_attention() == ""
