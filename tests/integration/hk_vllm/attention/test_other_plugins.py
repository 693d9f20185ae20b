"""Attention backends of other plugins: HK wraps them, or leaves them and says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, ClassVar

import pytest
import torch
from hk_vllm.attention import backend as wrappers
from hk_vllm.attention.impl import HKImpl
from hk_vllm.plugin import register
from vllm.platforms import current_platform
from vllm.utils.import_utils import resolve_obj_by_qualname
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend, CPUAttentionBackendImpl
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
from vllm.v1.attention.selector import AttentionSelectorConfig

from hk_backend.engine import loggers
from hk_backend.routing.routes import RouteCounters
from tests.integration.adapter import Environment
from tests.integration.hk_vllm.attention.batch import Batch, Layer
from tests.integration.hk_vllm.restore import restored
from tests.integration.shared.attention.rows import EXTEND, FRESH

CPU_ATTN, CUSTOM = AttentionBackendEnum.CPU_ATTN, AttentionBackendEnum.CUSTOM


class ObservingImpl(CPUAttentionBackendImpl):  # type: ignore[misc]
    """An implementation that sees every call."""

    calls: ClassVar[list[int]] = []

    def forward(
        self,
        layer: Any,
        query: Any,
        key: Any,
        value: Any,
        kv_cache: Any,
        attn_metadata: Any,
        output: Any,
        output_scale: Any = None,
        output_block_scale: Any = None,
    ) -> Any:
        ObservingImpl.calls.append(len(query))
        rest = (kv_cache, attn_metadata, output, output_scale, output_block_scale)
        return super().forward(layer, query, key, value, *rest)


class Observing(CPUAttentionBackend):  # type: ignore[misc]
    get_impl_cls = staticmethod(lambda: ObservingImpl)


class Adding(CPUAttentionBackend):  # type: ignore[misc]
    """A backend that changes nothing of what HK computes."""

    @classmethod
    def supports_sink(cls) -> bool:
        return True


class Alien:
    """A class that is not vLLM's and only offers a backend's methods."""

    forward_includes_kv_cache_update = False
    get_builder_cls = staticmethod(CPUAttentionBackend.get_builder_cls)
    get_impl_cls = staticmethod(CPUAttentionBackend.get_impl_cls)
    is_mla = staticmethod(lambda: False)


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch, environment: Environment) -> Iterator[None]:
    environment(HK_BACKEND="attention")
    monkeypatch.setattr("hk_backend.routing.metrics_directory._shared_by", 0)
    loggers.info_once.cache_clear()
    # other tests of this process keep the wrappers that they know
    monkeypatch.setattr(wrappers, "_wrapper_of", cache(wrappers._wrapper_of.__wrapped__))
    ObservingImpl.calls.clear()
    with restored():
        yield


Both = Callable[..., Any]


@pytest.fixture(params=["before-hk", "after-hk"])
def registered(request: pytest.FixtureRequest) -> Both:
    """Register another plugin's class, before HK or after it.

    The function returned gives the class that vLLM then selects for a layer.
    """

    def both(backend: Any, member: AttentionBackendEnum = CPU_ATTN) -> Any:
        if request.param == "after-hk":
            register()
        register_backend(member)(backend)
        if request.param == "before-hk":
            register()
        return selected()

    return both


def selected() -> Any:
    config = AttentionSelectorConfig(64, torch.float32, "auto", None)
    return resolve_obj_by_qualname(current_platform.get_attn_backend_cls(None, config))


def is_wrapped(backend: Any) -> bool:
    return issubclass(backend.get_impl_cls(), HKImpl)


@pytest.mark.parametrize(
    ("backend", "why"),
    [
        (Observing, f"ObservingImpl.forward is another plugin's: {__name__}.forward"),
        (Alien, f"Alien, which another plugin registered, does not derive from {CPU_ATTN.value}"),
    ],
)
def test_one_that_is_left_alone(
    backend: Any, why: str, registered: Both, caplog: Any, counters: RouteCounters
) -> None:
    """The backend's forward sees every step, and the log says why HK computes none."""
    found = registered(backend)
    assert found is backend
    assert f"hk_backend: CPU_ATTN stays as it is: {why}" in caplog.text
    if backend is not Alien:
        Batch(Layer(found), [EXTEND, FRESH]).run()
        assert len(ObservingImpl.calls) == 1
        assert counters.served.calls == 0


def test_one_that_adds(registered: Both, caplog: Any, counters: RouteCounters) -> None:
    """HK wraps a backend that only adds, and the log names it."""
    with caplog.at_level("INFO", "vllm.hk_vllm.attention"):
        found = registered(Adding)
    assert is_wrapped(found)
    assert issubclass(found, Adding)
    assert found.supports_sink()
    Batch(Layer(found), [EXTEND, FRESH]).run_and_check()
    assert counters.served.calls == 1
    said = f"CPU_ATTN: HK wraps {__name__}.Adding, which another plugin registered"
    assert said in caplog.text


def test_a_forward_that_was_exchanged(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """Another plugin may replace the method of vLLM's own class, without the registry."""
    monkeypatch.setattr(CPUAttentionBackendImpl, "forward", ObservingImpl.forward)
    found = wrappers._wrapper_of.__wrapped__("CPU_ATTN", CPU_ATTN.value)
    assert found is CPUAttentionBackend
    assert "CPUAttentionBackendImpl.forward is another plugin's" in caplog.text


def test_one_around_hk(monkeypatch: pytest.MonkeyPatch, counters: RouteCounters) -> None:
    """A backend derived from the registry's entry after HK runs, and HK computes inside of it."""
    register()
    hk = CPU_ATTN.get_class()

    class ImplAroundHK(hk.get_impl_cls()):  # type: ignore[misc]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            ObservingImpl.calls.append(0)
            return super().forward(*args, **kwargs)

    around = type("AroundHK", (hk,), {"get_impl_cls": staticmethod(lambda: ImplAroundHK)})
    monkeypatch.setitem(globals(), "AroundHK", around)
    register_backend(CPU_ATTN, f"{__name__}.AroundHK")
    found = selected()
    assert found is around
    Batch(Layer(found), [EXTEND, FRESH]).run_and_check()
    assert counters.served.calls == 1
    assert ObservingImpl.calls == [0]


def test_custom(registered: Both, caplog: Any) -> None:
    """A backend that users ask for as CUSTOM stays the other plugin's, and CPU_ATTN is HK's."""
    with caplog.at_level("INFO", "vllm.hk_vllm.attention"):
        found = registered(Adding, CUSTOM)
    assert is_wrapped(found)
    assert CUSTOM.get_class() is Adding
    assert f"CUSTOM stays {__name__}.Adding, which another plugin registered" in caplog.text
