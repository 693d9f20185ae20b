"""What the tests of the vLLM plugin share: layers, counters, the linear tests' engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hk_backend.routing.routes import RouteCounters, routes
from tests.integration.hk_vllm import linear_layers
from tests.integration.hk_vllm.imported import run_in_fork
from tests.integration.shared.e2e.engine import Forks
from tests.integration.shared.linear.engine import LinearEngine
from tests.integration.shared.linear_checkpoints import CHECKPOINTS, Checkpoint


@pytest.fixture
def counters() -> Iterator[RouteCounters]:
    """The attention route's counters, from zero and with the route on."""
    routes.reset()
    yield routes.counters("attention")
    routes.reset()


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Forks of a process that has imported vLLM."""
    forks = Forks("tests.integration.hk_vllm.imported", {})
    yield forks
    forks.stop()


@pytest.fixture
def format_elsewhere(forks: Forks, tmp_path: Path) -> Callable[[bytes], str]:
    """The format of a pickled configuration, which a process reads that has imported vLLM alone."""

    def read(stored: bytes) -> str:
        program = f"import pickle; print(pickle.loads({stored!r}).options.format)"
        return run_in_fork(forks, program, tmp_path).split()[-1]

    return read


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


@pytest.fixture(scope="module")
def linear_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What vLLM needs to make linear layers."""
    with linear_layers.one_rank(tmp_path_factory.mktemp("rank")), torch.no_grad():
        yield


@pytest.fixture(scope="module")
def linear_route(linear_rank: None) -> Iterator[None]:
    """The linear route, once for all tests of a module."""
    with linear_layers.installed():
        yield


@pytest.fixture
def fresh_linear_route(linear_rank: None) -> Iterator[None]:
    """The linear route, installed anew and counting from zero for each test."""
    with linear_layers.installed():
        yield


@pytest.fixture(scope="session")
def engine() -> LinearEngine:
    """What the shared tests of the linear route ask."""
    return linear_layers


@pytest.fixture(params=CHECKPOINTS)
def any_checkpoint(request: pytest.FixtureRequest) -> Checkpoint:
    """Each checkpoint that the engine reads, in turn."""
    return CHECKPOINTS[request.param]
