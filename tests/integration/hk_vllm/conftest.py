"""What the tests of the vLLM plugin share: classes and counters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hk_backend.routing.routes import RouteCounters, routes


@pytest.fixture
def counters() -> Iterator[RouteCounters]:
    """The attention route's counters, from zero and with the route on."""
    routes.reset()
    yield routes.counters("attention")
    routes.reset()


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
