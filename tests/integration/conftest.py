"""Fixtures for the tests of both engines' plugins: environment, threads, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from hk_backend.config import get_config
from hk_backend.engine.linear import route
from tests.integration.adapter import LINEAR
from tests.models import smollm2, tiny_llama

if TYPE_CHECKING:
    from tests.integration.shared.checkpoints import Scheme
    from tests.integration.shared.evidence import Bench


@pytest.fixture(autouse=True)
def configuration() -> None:
    """Read the environment anew for each test.

    An earlier test of the process may have left its own answers. A layer that is measured by them
    then runs the engine's kernels.
    """
    get_config.cache_clear()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Set HK_* variables and have them read again."""

    def set_variables(**values: str) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        read_again()

    yield set_variables
    monkeypatch.undo()
    read_again()


@pytest.fixture
def device(request: pytest.FixtureRequest, environment: Callable[..., None]) -> str:
    """Set HK_DEVICE to the test's parameter, and return it."""
    environment(HK_DEVICE=request.param)
    named: str = request.param
    return named


def read_again() -> None:
    get_config.cache_clear()
    route._check_of.cache_clear()


@pytest.fixture
def bench(
    environment: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Bench:
    """A process that has measured nothing yet. The test sets the times that it measures."""
    from tests.integration.shared import evidence

    environment(HK_EVIDENCE="measure", HK_DEVICE="auto", HK_CACHE_DIR=str(tmp_path / "kept"))
    found = evidence.Bench()
    monkeypatch.setattr(evidence.deciding, "measure", found.measure)
    evidence.start_again(monkeypatch)
    return found


@pytest.fixture
def small() -> Iterator[None]:
    """Compute small batches without gradients, on one thread that waits for no other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.no_grad():
        yield
    torch.set_num_threads(threads)


@pytest.fixture(params=LINEAR.CHECKPOINTS)
def any_checkpoint(request: pytest.FixtureRequest) -> Scheme:
    """Each checkpoint that the engine reads, in turn."""
    return LINEAR.CHECKPOINTS[request.param]


@pytest.fixture(scope="module")
def linear_rank() -> Iterator[None]:
    """Set up one rank of the engine, in which linear layers can be made."""
    with LINEAR.alone(), torch.no_grad():
        yield


@pytest.fixture(scope="module")
def linear_route(linear_rank: None) -> Iterator[None]:
    """Install the linear route once for all tests of a module."""
    with LINEAR.installed():
        yield


@pytest.fixture
def fresh_linear_route(linear_rank: None) -> Iterator[None]:
    """Install the linear route anew, with counters at zero, for each test."""
    with LINEAR.installed():
        yield


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of this session's models, results and logs."""
    return tmp_path_factory.mktemp("e2e")


@pytest.fixture(scope="session")
def checkpoint(folder: Path) -> Callable[[str], str]:
    """The checkpoint of a model of the catalogue, made on first use."""

    def checkpoint(model: str) -> str:
        if model == "smollm2":
            return str(smollm2())
        return str(tiny_llama(folder / "models", int(model.removeprefix("tiny-"))))

    return checkpoint


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--into", metavar="DOCUMENT", help="write the table of the engines' defaults there"
    )
