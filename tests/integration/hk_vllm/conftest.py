"""What the tests of the vLLM plugin share: layers, counters, environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from hk_backend.config import get_config
from hk_backend.routing.routes import RouteCounters, routes


@pytest.fixture
def counters() -> Iterator[RouteCounters]:
    """The attention route's counters, from zero and with the route on."""
    routes.reset()
    yield routes.counters("attention")
    routes.reset()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Set HK_* variables and have them read again."""

    def set_variables(**values: str) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        get_config.cache_clear()

    yield set_variables
    monkeypatch.undo()
    get_config.cache_clear()


@pytest.fixture(scope="session")
def hk_cpu() -> Any:
    """HK around vLLM's real CPU backend."""
    from hk_vllm.attention.backend import wrapper_of

    return wrapper_of("CPU_ATTN")


@pytest.fixture(scope="session")
def stock_cpu() -> Any:
    """vLLM's real CPU backend."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    return CPUAttentionBackend


@pytest.fixture
def small() -> Iterator[None]:
    """For batches of a few tokens: no gradients, and no waiting for other threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.no_grad():
        yield
    torch.set_num_threads(threads)
