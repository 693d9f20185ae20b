"""A fixture for the tests of the vLLM plugin: the counters of attention."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hk_backend.routing.routes import RouteCounters, routes


@pytest.fixture
def counters() -> Iterator[RouteCounters]:
    """The attention route's counters, which start at zero, with the route on."""
    routes.reset()
    yield routes.counters("attention")
    routes.reset()
