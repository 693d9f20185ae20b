"""HK's variables in Ray workers: vLLM's own code says what it copies."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator

import pytest
from hk_vllm import ray
from hk_vllm.plugin import register
from vllm.platforms import current_platform
from vllm.ray import ray_env

from tests.integration.hk_vllm.restore import restored

OURS = {"HK_BACKEND": "1", "HK_DEVICE": "cpu", "HK_CHECK": "0.5", "HK_STRICT": "0"}


@pytest.fixture(autouse=True)
def untouched(environment: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """vLLM and its variables as they are before any plugin, and again afterwards."""
    monkeypatch.delenv(ray.PREFIXES, raising=False)
    monkeypatch.setattr("hk_backend.routing.metrics_directory._shared_by", 0)
    environment(**OURS)
    with restored():
        yield
    for name in (ray.PREFIXES, "HK_METRICS_DIR"):
        os.environ.pop(name, None)


def copied() -> list[set[str]]:
    """As the older Ray executor asks; and as the manager of `--data-parallel-backend ray` does:
    nothing of a platform's."""
    of_platform = set(current_platform.additional_env_vars)
    ask = ray_env.get_env_vars_to_copy
    return [
        ask(additional_vars=of_platform, destination="workers"),
        ask(destination="EngineCoreActor"),
    ]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_the_plugin_has_all_of_them_copied(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """Without it vLLM copies none. A wrong value is every process's to report."""
    monkeypatch.setenv("HK_DEVICE", device)
    assert not any(OURS.keys() & names for names in copied())
    register()
    assert all(OURS.keys() <= names for names in copied())
    assert ray.left_out() == []


def test_what_the_user_excludes_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """vLLM's list of exclusions, from a file of the user's, wins over every prefix."""
    monkeypatch.setattr(ray_env, "RAY_NON_CARRY_OVER_ENV_VARS", {"HK_CHECK"})
    ray.print_left_out()
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"HK_CHECK": "0.5"}
    for name in [name for name in os.environ if name.startswith("HK_")]:
        monkeypatch.delenv(name)
    assert ray.left_out() == []
