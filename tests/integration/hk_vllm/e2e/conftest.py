"""Engines: each started when the first test asks for what it answers, and once per session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.hk_vllm.e2e.catalogue import CHUNKED, FLOAT32, HALF, SINGLES, of_case
from tests.integration.hk_vllm.e2e.engine import FORKS, serve
from tests.integration.shared.e2e.engine import HK, Checkpoint, Engines, Reader


@pytest.fixture(scope="session", autouse=True)
def end_of_forks() -> Iterator[None]:
    """The process that forks engines ends with the session's last test."""
    yield
    FORKS.stop()


@pytest.fixture(scope="session")
def served(checkpoint: Checkpoint, folder: Path) -> Reader:
    """What one of `SINGLES` left behind."""
    model = checkpoint("tiny-64")
    asked = (single.asked(name, model, CHUNKED) for name, single in SINGLES.items())
    return serve(asked, folder / "singles", {}).of


@pytest.fixture(scope="session")
def stock(checkpoint: Checkpoint, folder: Path) -> Engines:
    """The catalogue's cases in half precision, by vLLM alone."""
    return serve((of_case(case, checkpoint) for case in HALF), folder / "stock", {})


@pytest.fixture(scope="session")
def hk(checkpoint: Checkpoint, folder: Path) -> Engines:
    """The catalogue's cases, by HK."""
    return serve((of_case(case, checkpoint) for case in FLOAT32 + HALF), folder / "hk", HK)
