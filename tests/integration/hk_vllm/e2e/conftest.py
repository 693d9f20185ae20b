"""A fixture that ends the process from which engines are forked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.hk_vllm.e2e.engine import FORKS


@pytest.fixture(scope="session", autouse=True)
def end_of_forks() -> Iterator[None]:
    """End that process with the session's last test."""
    yield
    FORKS.stop()
