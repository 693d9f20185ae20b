"""Fixtures for the tests of SGLang's attention: configuration, counters, routed factories."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hk_sglang.attention.install import register_attention
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.runtime_context import get_context

from hk_backend.routing.routes import RouteCounters, routes
from tests.devices.hip.device import OnTheHost
from tests.integration.adapter import Environment
from tests.integration.hk_sglang.attention import batch, drafter, engine
from tests.integration.shared.attention.gpu import emulated_gpu


@pytest.fixture(autouse=True)
def all_are_small(small: None) -> None:
    """Every test of this folder computes batches of a few tokens."""


@pytest.fixture
def published() -> Iterator[Callable[..., None]]:
    """Publish a configuration with fields of the caller's, as a scheduler process does."""
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
def counters() -> Iterator[RouteCounters]:
    """Route SGLang's factories, and return the attention route's counters, which start at zero."""
    with engine.routed() as found:
        yield found


@pytest.fixture
def stand_ins(counters: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register torch_native under the names of backends that need a GPU or a kernel package."""
    stock = batch.ATTENTION_BACKENDS["torch_native"].hk_original
    for name in ("aiter", "triton", "intel_amx", "flex_attention", "dsa"):
        monkeypatch.setitem(batch.ATTENTION_BACKENDS, name, stock)
    assert register_attention() == ""


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[OnTheHost]:
    with emulated_gpu(monkeypatch) as found:
        yield found


@pytest.fixture
def graphs(device: OnTheHost, environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let HK compute on the emulated GPU wherever it can, over a parent with graphs."""
    environment(HK_DEVICE="hip", HK_EVIDENCE="ignore")
    allocate = lambda self, max_bs, max_num_tokens: None  # noqa: E731
    monkeypatch.setattr(TorchNativeAttnBackend, "init_cuda_graph_state", allocate, raising=False)


@pytest.fixture
def attention(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> Iterator[RouteCounters]:
    """Install the attention routes over a draft model's; returns prefill's counters."""
    environment(HK_EVIDENCE="ignore")
    drafter.stand_ins(monkeypatch)
    with engine.routed("attention,decode") as counters:
        yield counters


@pytest.fixture
def decode(attention: RouteCounters) -> RouteCounters:
    """Install the same routes; returns decode's counters."""
    return routes.counters("decode")
