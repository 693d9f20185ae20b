"""Graphs of HK's launches: captured once, replayed with other inputs, right each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from hk_backend.devices import always
from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.kernels import catalogue
from hk_backend.ops import attention_prefill, linear
from hk_backend.terms.packed_weight import PackedWeight
from hk_backend.terms.requests import LinearRequest
from hk_backend.terms.verdict import SERVED
from tests.devices.hip.attention_call import BF16, Call
from tests.devices.hip.device import OnTheHost, SynchronisesInChecks
from tests.devices.hip.graph import Graph, Launch, check_replays
from tests.ops.cases import Case
from tests.ops.linear_cases import Case as Linear
from tests.ops.linear_cases import Layer
from tests.ops.linear_cases import make as make_layer
from tests.ops.linear_oracle import check_result

LAYERS = {
    "bf16": Linear("bf16", m=5, n=40, k=96, bias=torch.bfloat16),
    "split": Linear("bf16", m=3, n=40, k=4096),
    "fp8 by token": Linear("fp8_e4m3fn", "token", "channel", bias=torch.float32),
    "fp8 by token, split": Linear("fp8_e4m3fn", "token", "channel", m=2, k=8192),
    "fp8 static": Linear("fp8_e4m3fn", "tensor", "channel", static=True),
}
SPLIT = LAYERS["split"]
WIDER = SPLIT.but(m=33, n=600)
"""A wider problem, whose splits leave more sums."""


@pytest.fixture
def device(library: EmulatedLibrary, streams: dict[int, int]) -> Iterator[OnTheHost]:
    device = OnTheHost(library, catalogue("gfx950"), check=lambda *_: SERVED)
    with always(device):
        yield device


class LayerCall:
    """A linear layer's call on the current stream."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.packed: PackedWeight = layer.pack()

    def tensors(self) -> dict[str, torch.Tensor]:
        """All tensors that the kernels read."""
        found = {"x": self.layer.x, **self.packed.tensors()}
        return found if self.layer.bias is None else {**found, "bias": self.layer.bias}

    def enqueue(self) -> torch.Tensor:
        return linear(self.layer.x, self.packed, self.layer.bias, self.layer.out_dtype)

    def check(self, out: torch.Tensor) -> None:
        check_result(self.layer, out)


@pytest.mark.parametrize("first", [True, False], ids=["first call", "later call"])
@pytest.mark.parametrize("case", LAYERS.values(), ids=list(LAYERS))
def test_replays(
    case: Linear, first: bool, device: OnTheHost, library: EmulatedLibrary, streams: dict[int, int]
) -> None:
    captured, others = (
        LayerCall(make_layer(case)),
        [LayerCall(make_layer(case.but(seed=seed))) for seed in (1, 2)],
    )
    left = list(others)

    def enqueue() -> torch.Tensor:
        if first:
            device.prepared_calls.clear()
        return captured.enqueue()

    launch = Launch(enqueue, captured.tensors(), lambda out: left.pop(0).check(out))
    check_replays(library, streams[0], launch, [other.tensors() for other in others])
    assert not left


def test_a_graph_keeps_its_workspace(
    device: OnTheHost, library: EmulatedLibrary, streams: dict[int, int]
) -> None:
    """Calls outside of the graph change nothing, even those that need a larger workspace."""
    captured, graph = LayerCall(make_layer(SPLIT)), Graph(library, streams[0])
    captured.enqueue()
    with graph.capture():
        out = captured.enqueue()
    own = device.workspaces.of(0, streams[0], 0)
    for case in (SPLIT.but(seed=1), WIDER):
        other = LayerCall(make_layer(case))
        found = other.enqueue()
        library.synchronise(streams[0])
        other.check(found)
    assert device.workspaces.of(0, streams[0], 0) is not own
    own.partial.fill_(torch.nan)
    for _ in range(2):
        out.fill_(torch.nan)
        graph.replay()
        captured.check(out)
        assert not own.partial.isnan().all(), "its sums are there"
        assert not own.arrived.any()


@pytest.mark.parametrize("case", LAYERS.values(), ids=list(LAYERS))
def test_a_layer_that_was_loaded_can_be_captured(
    case: Linear, library: EmulatedLibrary, streams: dict[int, int]
) -> None:
    """Loading does all work that a first use would wait for. This includes self-checks, also of the
    rounding of activations, and lasting memory."""
    device = SynchronisesInChecks(library, catalogue("gfx950"))
    with always(device):
        layer = make_layer(case)
        what = (layer.x.dtype, layer.format, case.n, case.k, layer.activations)
        request = LinearRequest("cpu", *what, case.scale_kind or None)
        assert device.verdict(request)
        call, graph = LayerCall(layer), Graph(library, streams[0])
        with graph.capture():
            out = call.enqueue()
        graph.replay()
        call.check(out)


E4M3 = torch.float8_e4m3fn
LAYOUT = "NHD, two tensors"
FIRST, SECOND = ((33, 33), (5, 5)), ((8, 8), (30, 30))
"""Two steps with equal numbers of tokens and of requests, which a graph fixes. A replay reads anew
where each request ends."""
FIRST_EXTENDS, SECOND_EXTENDS = ((5, 70), (33, 40)), ((30, 75), (8, 33))
"""Two steps with equal numbers of blocks, too."""


def tensors_of(call: Call) -> dict[str, torch.Tensor]:
    """All tensors that the kernel reads."""
    found = {name: value for name, value in call.made.items() if isinstance(value, torch.Tensor)}
    if "paged_kv" in call.made:
        found |= {"key cache": call.tensors[1], "value cache": call.tensors[2]}
    return found


def by_operator(device: OnTheHost, call: Call) -> Callable[[], object]:
    """The first call of a layer: it goes through the operator."""
    return lambda: attention_prefill(**call.made, out=call.out)


def prepared(device: OnTheHost, call: Call) -> Callable[[], object]:
    """A later call of a layer: a prepared launch."""
    ready, step = call.prepared(device), call.step()
    return lambda: ready.launch(step, call.tensors)


def attention(
    device: OnTheHost, case: Case, way: Callable[[OnTheHost, Call], Callable[[], object]]
) -> Launch:
    call = Call(case)
    launch = way(device, call)

    def enqueue() -> torch.Tensor:
        launch()
        return call.out

    return Launch(enqueue, tensors_of(call), lambda out: call.check())


@pytest.mark.parametrize("way", [by_operator, prepared])
@pytest.mark.parametrize(
    ("first", "second", "more"),
    [
        (FIRST, SECOND, {}),
        (FIRST_EXTENDS, SECOND_EXTENDS, {"layout": LAYOUT}),
        (
            FIRST_EXTENDS,
            SECOND_EXTENDS,
            {"layout": LAYOUT, "kv_dtype": E4M3, "k_scale": "one", "v_scale": "per head"},
        ),
    ],
    ids=["packed", "paged", "narrow"],
)
def test_attention(
    first: Any,
    second: Any,
    more: dict[str, Any],
    way: Any,
    device: OnTheHost,
    library: EmulatedLibrary,
    streams: dict[int, int],
) -> None:
    of = Case(first, 4, 2, 64, BF16, **more)
    others = [tensors_of(Call(of.but(lengths=second, seed=1))), tensors_of(Call(of.but(seed=2)))]
    check_replays(library, streams[0], attention(device, of, way), others)
