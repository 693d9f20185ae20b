"""The routes in a graph: what is counted, and that HK_CHECK lets the capture be and says that it
cannot see.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from hk_backend.devices import always
from hk_backend.devices.hip.emulated import LIBRARY, EmulatedLibrary
from hk_backend.engine.attention import PrefillRoute, plan_step
from hk_backend.kernels import catalogue
from hk_backend.routing.routes import routes
from hk_backend.terms.verdict import SERVED
from tests.devices.hip.device import OnTheHost, current_streams
from tests.devices.hip.graph import Graph
from tests.engine.conftest import forget
from tests.ops.cases import Call, Case, make
from tests.ops.oracle import close, expected

BF16 = torch.bfloat16
CASE = Case(((33, 33), (5, 5)), 2, 2, 64, BF16)


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    """On the current stream of an emulated GPU, on which all tensors are; each call is checked."""
    monkeypatch.setenv("HK_CHECK", "1")
    forget()
    library = EmulatedLibrary(LIBRARY)
    library.reset("gfx950", 2)
    streams = current_streams(library, monkeypatch)
    with always(OnTheHost(library, catalogue("gfx950"), check=lambda *_: SERVED)):
        yield Graph(library, streams[0])
    library.reset("gfx950")


def layer(call: Call, out: torch.Tensor) -> Callable[[], str]:
    """A layer's calls in one step, as an engine makes them."""
    route = PrefillRoute(logging.getLogger("engine"))
    step = plan_step(call["query_start_loc"], len(call["query"]))
    names = ("query", "key", "value")

    def arguments() -> dict[str, Any]:
        return {**{name: call[name] for name in names}, "out": out}

    return lambda: route.compute(
        step, False, (call["query"], call["key"], call["value"], out), arguments
    )


def test_a_capture_survives_hk_check(graph: Graph) -> None:
    """Comparing would read from the device, which ends a capture."""
    call, other = make(CASE), make(CASE.but(seed=1))
    out = torch.empty_like(call["query"])
    compute = layer(call, out)
    compute()  # the kernel's first use, which no capture may be
    graph.library.synchronise(graph.stream)
    routes.reset()
    with graph.capture():
        for _ in range(2):  # by the operator, and prepared
            assert compute() == ""
    counters = routes.counters("attention")
    assert (counters.unchecked_calls, counters.checked_calls) == (2, 0)
    for name in ("query", "key", "value"):
        call[name].copy_(other[name])
    out.fill_(torch.nan)
    graph.replay()
    want = expected(other, BF16)
    close("out", out, want.out, want.out_bound)
    assert counters.unchecked_calls == 2, "a replay is no call"


def test_the_same_call_is_compared_outside_of_a_capture(graph: Graph) -> None:
    """The control: nothing has run yet that the check could find right."""
    call = make(CASE)
    assert "HK_CHECK: error" in layer(call, torch.zeros_like(call["query"]))()
    counters = routes.counters("attention")
    assert (counters.unchecked_calls, counters.checked_calls) == (0, 1)
