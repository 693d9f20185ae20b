"""The loading of the plugin: what it registers, and everything in which it must do no harm.

Other tests hold HK's variables in Ray workers, routes in the key of vLLM's compile cache, and the
engine that `hk-backend tune` starts.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_vllm import load_once, ray
from hk_vllm.attention.install import watch_selection
from hk_vllm.compile_key import add_route
from hk_vllm.plugin import register
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.platforms import current_platform
from vllm.ray import ray_env
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.v1.attention.selector import AttentionSelectorConfig
from vllm.v1.engine.core_client import EngineCoreClient

from hk_backend.engine import loggers
from hk_backend.engine.patching import MARK
from hk_backend.engine.strict import StrictError
from hk_backend.routing.routes import routes
from tests.integration.adapter import Environment
from tests.integration.hk_vllm.attention.batch import constructing, vllm_config
from tests.integration.hk_vllm.restore import restored

MEMBERS = AttentionBackendEnum
HK_PATH = "hk_vllm.attention.backend.HK_CPU_ATTN"
OURS = {"HK_BACKEND": "1", "HK_DEVICE": "cpu", "HK_CHECK": "0.5", "HK_STRICT": "0"}


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore vLLM, before a test and after it, to what it is without a plugin."""
    for variable in (*OURS, "HK_METRICS_DIR", ray.PREFIXES):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("hk_backend.routing.metrics_directory._shared_by", 0)
    with restored():
        yield
    for name in (ray.PREFIXES, "HK_METRICS_DIR"):
        os.environ.pop(name, None)


def patched() -> bool:
    """Whether a plugin has changed vLLM's registry, selection or linear layers."""
    overridden = any(member.is_overridden() for member in MEMBERS)
    custom = hasattr(type(current_platform).get_attn_backend_cls, MARK)
    return overridden or custom or hasattr(UnquantizedLinearMethod.apply, "hk_original")


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]


# -- switched on


@pytest.mark.parametrize("value", ["1", "attention"])
def test_on(environment: Environment, caplog: Any, value: str) -> None:
    """HK takes the platform's own backends and CUSTOM, and no others, however often it is loaded.

    No flag, the backend's own name and CUSTOM each give what the platform would choose.
    """
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
    """A platform that has a backend for any layer, with HK's hook on it."""

    def __init__(self) -> None:
        asked: list[Any] = []

        class Platform:
            @classmethod
            def get_attn_backend_cls(
                cls, selected_backend: Any, attn_selector_config: Any, num_heads: int | None = None
            ) -> str:
                asked.append((selected_backend, attn_selector_config, num_heads))
                return "path"

        watch_selection(Platform)
        watch_selection(Platform)
        self.asked, self.select = asked, Platform.get_attn_backend_cls


def test_custom_asks_the_platform_for_its_own_choice() -> None:
    platform = Asked()
    assert platform.select(MEMBERS.CUSTOM, "facts", num_heads=3) == "path"
    platform.select(MEMBERS.TRITON_ATTN, attn_selector_config="facts")
    assert platform.asked == [(None, "facts", 3), (MEMBERS.TRITON_ATTN, "facts", None)]


def test_latent_attention_is_left_in_a_line(environment: Environment, caplog: Any) -> None:
    """HK leaves DeepSeek's layers, and the log has one line about all of them."""
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


# -- obstacles


def test_an_engine_outside_the_contract(
    environment: Environment, caplog: Any, monkeypatch: pytest.MonkeyPatch
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
    environment: Environment, caplog: Any, monkeypatch: pytest.MonkeyPatch
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


# -- Ray workers: vLLM's own code says what it copies


def copied() -> list[set[str]]:
    """Variables that vLLM copies for the older Ray executor, and for `--data-parallel-backend ray`.

    The manager of the latter copies none of the platform's.
    """
    of_platform = set(current_platform.additional_env_vars)
    ask = ray_env.get_env_vars_to_copy
    return [
        ask(additional_vars=of_platform, destination="workers"),
        ask(destination="EngineCoreActor"),
    ]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_all_variables_are_copied(
    environment: Environment,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    device: str,
) -> None:
    """The plugin makes vLLM copy all of HK's variables, wrong values too, for each to report.

    A variable that the user excludes, in a file, is not copied, and HK names it.
    """
    environment(**OURS | {"HK_DEVICE": device})
    assert not any(OURS.keys() & names for names in copied())
    register()
    assert all(OURS.keys() <= names for names in copied())
    assert ray.left_out() == []
    monkeypatch.setattr(ray_env, "RAY_NON_CARRY_OVER_ENV_VARS", {"HK_CHECK"})
    ray.print_left_out()
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"HK_CHECK": "0.5"}
    for name in [name for name in os.environ if name.startswith("HK_")]:
        monkeypatch.delenv(name)
    assert ray.left_out() == []


# -- the key of vLLM's compile cache


class Extra:
    """An `additional_config` that brings its own hash, as vLLM allows."""

    answer = 42

    def compute_hash(self) -> str:
        return "extra"


@pytest.mark.parametrize("extra", [dict, lambda: {"mine": 1}, Extra], ids=["no", "dict", "object"])
def test_each_set_of_routes_has_its_own_key(extra: Any, small: None) -> None:
    add_route("attention")  # no configuration is current
    keys = set()
    for names in ([], ["attention"], ["linear"], ["attention", "linear"]):
        config = vllm_config()
        object.__setattr__(config, "additional_config", extra())
        with constructing(config, config.model_config.dtype):
            for route in names * 2:
                add_route(route)
        keys.add(config.compute_hash())
        assert getattr(config.additional_config, "answer", 42) == 42, "an object stays usable"
    assert len(keys) == 4


# -- the engine that `hk-backend tune` starts, with a stand-in for it


def test_random_weights_and_the_servers_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[Any] = []
    ended: list[bool] = []
    core = SimpleNamespace(shutdown=lambda: ended.append(True))
    started = SimpleNamespace(llm_engine=SimpleNamespace(engine_core=core))
    assert callable(load_once.LLM.from_engine_args)
    assert callable(EngineCoreClient.shutdown)
    engine = SimpleNamespace(from_engine_args=lambda given: made.append(given) or started)
    monkeypatch.setattr(load_once, "LLM", engine)
    options = ["--max-model-len", "64", "--dtype", "float16", "--load-format", "auto"]
    model = str(tmp_path)  # vLLM looks for the folder at once with HF_HUB_OFFLINE
    load_once.load_once(model, options)
    (arguments,) = made
    assert (arguments.model, arguments.max_model_len, arguments.dtype) == (model, 64, "float16")
    assert arguments.load_format == "dummy", "the last word is ours"
    assert arguments.enforce_eager
    assert ended == [True]
    with pytest.raises(SystemExit):
        load_once.load_once("a/model", ["--no-such-option"])
    assert "--no-such-option" in capsys.readouterr().err
