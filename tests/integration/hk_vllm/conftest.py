"""What the tests of the vLLM plugin share: counters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hk_backend.routing.routes import RouteCounters, routes


@pytest.fixture
def counters() -> Iterator[RouteCounters]:
    """The attention route's counters, from zero and with the route on."""
    routes.reset()
    yield routes.counters("attention")
    routes.reset()
