"""The attention route of the environment's engine, and its counters."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import pytest

from hk_backend.routing.routes import RouteCounters
from tests.integration.adapter import PLUGIN
from tests.integration.shared.attention.engine import AttentionEngine

ATTENTION: AttentionEngine = import_module(f"tests.integration.{PLUGIN}.attention.engine")


@pytest.fixture(autouse=True)
def all_are_small(small: None) -> None:
    """Every test of this folder computes batches of a few tokens."""


@pytest.fixture(scope="session")
def attention() -> AttentionEngine:
    """What the tests ask of the engine of this environment."""
    return ATTENTION


@pytest.fixture
def counters(attention: AttentionEngine) -> Iterator[RouteCounters]:
    with attention.routed() as found:
        yield found
