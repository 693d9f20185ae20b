"""Loading the plugin: what it registers, and everything in which it must be harmless."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_vllm import plugin
from hk_vllm.plugin import register
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.platforms import current_platform
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.v1.attention.selector import AttentionSelectorConfig

from hk_backend.engine import loggers
from hk_backend.engine.registration import RegisterError
from hk_backend.engine.strict import StrictError
from hk_backend.routing.routes import routes
from tests.integration.hk_vllm.restore import restored

MEMBERS = AttentionBackendEnum
HK_PATH = "hk_vllm.attention.backend.HK_CPU_ATTN"


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """vLLM as it is before any plugin, and again afterwards."""
    for variable in ("HK_BACKEND", "HK_DEVICE", "HK_STRICT", "HK_CHECK", "HK_METRICS_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("hk_backend.routing.metrics_directory._shared_by", 0)
    with restored():
        yield
    os.environ.pop("HK_METRICS_DIR", None)


def patched() -> bool:
    """Whether anything of vLLM's registry, selection or linear layers is not as vLLM made it."""
    overridden = any(member.is_overridden() for member in MEMBERS)
    custom = hasattr(type(current_platform).get_attn_backend_cls, "hk_custom")
    return overridden or custom or hasattr(UnquantizedLinearMethod.apply, "hk_original")


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]


# -- on


@pytest.mark.parametrize("value", ["1", "attention"])
def test_on(environment: Callable[..., None], caplog: Any, value: str) -> None:
    """Only the platform's own backends are HK's, and CUSTOM; loading twice is loading once. No
    flag, the backend's own name, and CUSTOM: each takes what the platform would choose."""
    environment(HK_BACKEND=value)
    register()
    chosen = type(current_platform).get_attn_backend_cls
    backend = MEMBERS.CPU_ATTN.get_class()
    register()
    assert type(current_platform).get_attn_backend_cls == chosen
    assert MEMBERS.CPU_ATTN.get_class() is backend
    # the parent of the wrapper is vLLM's class, not the wrapper of the first time
    assert [base.__name__ for base in backend.__mro__[:2]] == ["HK_CPU_ATTN", "CPUAttentionBackend"]
    overridden = {member.name: member.get_path() for member in MEMBERS if member.is_overridden()}
    assert overridden == {"CPU_ATTN": HK_PATH, "CUSTOM": HK_PATH}
    config = AttentionSelectorConfig(64, torch.float32, "auto", None)
    for member in (MEMBERS.CUSTOM, MEMBERS.CPU_ATTN, None):
        assert current_platform.get_attn_backend_cls(member, config) == HK_PATH
    assert not errors(caplog)


class Asked:
    """A platform that has a backend for any layer, with the plugin's eyes on it."""

    def __init__(self) -> None:
        asked: list[Any] = []

        class Platform:
            @classmethod
            def get_attn_backend_cls(
                cls, selected_backend: Any, attn_selector_config: Any, num_heads: int | None = None
            ) -> str:
                asked.append((selected_backend, attn_selector_config, num_heads))
                return "path"

        plugin.watch_selection(Platform)
        plugin.watch_selection(Platform)
        self.asked, self.select = asked, Platform.get_attn_backend_cls


def test_custom_asks_the_platform_for_its_own_choice() -> None:
    platform = Asked()
    assert platform.select(MEMBERS.CUSTOM, "facts", num_heads=3) == "path"
    platform.select(MEMBERS.TRITON_ATTN, attn_selector_config="facts")
    assert platform.asked == [(None, "facts", 3), (MEMBERS.TRITON_ATTN, "facts", None)]


def test_latent_attention_is_left_in_a_line(environment: Callable[..., None], caplog: Any) -> None:
    """DeepSeek's layers, of which HK wraps no backend."""
    loggers.info_once.cache_clear()
    config = AttentionSelectorConfig(576, torch.bfloat16, "auto", None)
    latent, platform = config._replace(use_mla=True), Asked()
    with caplog.at_level("INFO", "vllm.hk_vllm.attention"):
        platform.select(None, config)
        assert not caplog.records
        for _ in range(61):
            assert platform.select(None, latent) == "path"
    said = "hk_backend: layers left to vLLM's attention: latent attention"
    assert [record.getMessage() for record in caplog.records] == [said]
    environment(HK_STRICT="1")
    assert platform.select(None, config) == "path"
    with pytest.raises(StrictError, match="attention would fall back: latent attention"):
        platform.select(None, latent)


# -- in the way


@pytest.mark.parametrize(
    ("variable", "value", "valid"),
    [
        ("HK_BACKEND", "yes", "0, 1, or a comma-separated list of routes: attention"),
        ("HK_BACKEND", "attention,linears", "attention"),
        ("HK_DEVICE", "gpu", "auto, hip, cpu"),
        ("HK_STRICT", "true", "0 or 1"),
        ("HK_CHECK", "2", "between 0 and 1"),
    ],
)
def test_a_wrong_value(
    environment: Callable[..., None], caplog: Any, variable: str, value: str, valid: str
) -> None:
    """One line that names the variable, its value and the valid ones; vLLM as it is."""
    environment(**{"HK_BACKEND": "1", variable: value})
    register()
    assert not patched()
    (line,) = errors(caplog)
    assert variable in line
    assert repr(value) in line
    assert valid in line
    if variable != "HK_STRICT":
        environment(HK_STRICT="1")
        with pytest.raises(RegisterError, match=f"{variable}='{value}'"):
            register()
        assert not patched()


def test_an_engine_outside_the_contract(
    environment: Callable[..., None], caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.attention import backend

    monkeypatch.setattr(backend.AttentionImpl, "forward", lambda self, everything: None)
    environment(HK_BACKEND="attention")
    register()
    assert not patched()
    (line,) = errors(caplog)
    assert "forward" not in line.split(":")[0]
    assert "expected (self, layer, query, key, value" in line
    assert routes.verdict("attention").why in line


def test_a_platform_without_a_route(
    environment: Callable[..., None], caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = SimpleNamespace(
        is_cpu=lambda: False,
        is_rocm=lambda: False,
        device_name="tpu",
        get_attn_backend_cls=current_platform.get_attn_backend_cls,
    )
    monkeypatch.setattr("vllm.platforms.current_platform", nobody)
    environment(HK_BACKEND="1")
    register()
    assert not patched()
    assert "no route for vLLM's platform tpu" in errors(caplog)[0]


# -- in other processes
