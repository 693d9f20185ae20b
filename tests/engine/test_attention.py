"""The attention route on a GPU: a layer's first call is checked, and later ones go to the launcher.

Calls in a graph are counted. HK_CHECK leaves a capture alone, and reports that it cannot compare.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hk_backend.config import get_config
from hk_backend.devices import always
from hk_backend.devices.hip.emulated import LIBRARY, EmulatedLibrary
from hk_backend.engine import attention
from hk_backend.engine.attention import AttentionRoute
from hk_backend.kernels import catalogue
from hk_backend.lab.bench.launch.nothing import nothing_device
from hk_backend.ops import PagedKV
from hk_backend.routing.routes import routes
from hk_backend.terms.attention_step import AttentionStep
from hk_backend.terms.verdict import SERVED
from tests.devices.hip.device import OnTheHost, current_streams
from tests.devices.hip.graph import Graph
from tests.engine.conftest import forget
from tests.ops.cases import Call, Case, make
from tests.ops.oracle import close, expected

BF16 = torch.bfloat16
HEADS, KV_HEADS, SIZE, BLOCK = 4, 2, 64, 16
STARTS = torch.tensor([0, 5, 12], dtype=torch.int32)
TOKENS = 12
ENGINE = logging.getLogger("engine")


@pytest.fixture
def library() -> Iterator[EmulatedLibrary]:
    """An emulated GPU that holds all tensors; its launches do nothing."""
    device, found = nothing_device()
    with always(device):
        yield found
    found.reset("gfx950")


class Layer:
    """One layer's calls, with a count of how often the operator's arguments were built."""

    def __init__(self, paged: bool) -> None:
        self.route = AttentionRoute(ENGINE)
        cache = torch.zeros(8, KV_HEADS, BLOCK, 2 * SIZE, dtype=BF16)
        self.cache = PagedKV.from_packed(cache) if paged else None
        self.asked = 0

    def tensors(self, tokens: int = TOKENS) -> tuple[torch.Tensor, ...]:
        query = torch.zeros(tokens, HEADS, SIZE, dtype=BF16)
        if self.cache is not None:
            return query, self.cache.key.tensor, self.cache.value.tensor, query.clone()
        key = torch.zeros(tokens, KV_HEADS, SIZE, dtype=BF16)
        return query, key, key.clone(), query.clone()

    def call(self, step: AttentionStep, tensors: Any = None) -> str:
        query, key, value, out = tensors or self.tensors()

        def arguments() -> dict[str, Any]:
            self.asked += 1
            keys = {"key": key, "value": value} if self.cache is None else {"paged_kv": self.cache}
            return {"query": query, "out": out, **keys}

        paged = self.cache is not None
        return self.route.compute(step, paged, (query, key, value, out), arguments)


def a_step() -> AttentionStep:
    return AttentionStep.of(
        STARTS,
        TOKENS,
        torch.tensor([9, 20], dtype=torch.int32),
        torch.tensor([[1, 2], [3, 4]], dtype=torch.int32),
    )


class SeesEverything(TorchDispatchMode):
    """A list of everything that reaches torch's dispatcher."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("paged", [False, True], ids=["packed", "paged"])
def test_later_calls_go_past_torch(
    paged: bool, library: EmulatedLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = Layer(paged)
    assert layer.call(a_step()) == ""
    assert (layer.asked, library.launch_calls()) == (1, 1)
    monkeypatch.setattr(attention, "attention_prefill", lambda **_: pytest.fail("the operator"))
    step, tensors = a_step(), layer.tensors(TOKENS + 3)
    with SeesEverything() as everything:
        assert layer.call(step, tensors) == ""
    assert (layer.asked, library.launch_calls()) == (1, 2)
    assert everything.seen == []


@pytest.mark.parametrize(
    ("index", "change", "argument"),
    [
        (0, lambda t: t.float(), "key"),  # its dtype is not the query's
        (0, lambda t: t[:, :3], "query"),
        (0, lambda t: torch.zeros(TOKENS, HEADS, 2 * SIZE, dtype=BF16)[..., ::2], "query"),
        (0, lambda t: t[: TOKENS - 1], "query"),
        (1, lambda t: t[: TOKENS - 1], "key"),
        (1, lambda t: t.half(), "key"),
        (2, lambda t: t[:, :1], "value"),
        (3, lambda t: t[..., :32], "out"),
        (3, lambda t: t.transpose(0, 1), "out"),
    ],
)
def test_a_wrong_tensor_later_is_refused_not_launched(
    index: int,
    change: Callable[[torch.Tensor], torch.Tensor],
    argument: str,
    library: EmulatedLibrary,
) -> None:
    layer = Layer(paged=False)
    assert layer.call(a_step()) == ""
    tensors = list(layer.tensors())
    tensors[index] = change(tensors[index])
    why = layer.call(a_step(), tuple(tensors))
    assert why.startswith(f"HK failed: ValueError: {argument}: ")
    assert library.launch_calls() == 1
    assert routes.is_disabled("attention")


def test_a_checked_call_is_asked_for_its_arguments(
    library: EmulatedLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HK_CHECK compares the result of a launch, on the prepared path too."""
    monkeypatch.setenv("HK_CHECK", "1")
    get_config.cache_clear()
    layer = Layer(paged=False)
    query, key, value, out = layer.tensors()
    for asked in (2, 3):
        assert layer.call(a_step(), (query, key, value, out)) == ""  # zeros, as if computed
        assert layer.asked == asked
    out.fill_(1.0)
    assert "error" in layer.call(a_step(), (query, key, value, out))


BF16 = torch.bfloat16
CASE = Case(((33, 33), (5, 5)), 2, 2, 64, BF16)


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    """A graph on the current stream of an emulated GPU. The GPU holds all tensors, and HK_CHECK is
    on."""
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
    route = AttentionRoute(logging.getLogger("engine"))
    step = AttentionStep.of(call["query_start_loc"], len(call["query"]))
    names = ("query", "key", "value")

    def arguments() -> dict[str, Any]:
        return {**{name: call[name] for name in names}, "out": out}

    return lambda: route.compute(
        step, False, (call["query"], call["key"], call["value"], out), arguments
    )


def test_a_capture_survives_hk_check(graph: Graph) -> None:
    """A comparison would read from the device, and so end the capture."""
    call, other = make(CASE), make(CASE.but(seed=1))
    out = torch.empty_like(call["query"])
    compute = layer(call, out)
    compute()  # the kernel's first use, never allowed in a capture
    graph.library.synchronise(graph.stream)
    routes.reset()
    with graph.capture():
        for _ in range(2):  # the first by the operator, the second prepared
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
    """A control for the test above: outside of a capture the call is compared. It fails, since no
    launch has run yet."""
    call = make(CASE)
    assert "HK_CHECK: error" in layer(call, torch.zeros_like(call["query"]))()
    counters = routes.counters("attention")
    assert (counters.unchecked_calls, counters.checked_calls) == (0, 1)
