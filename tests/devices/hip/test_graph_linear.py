"""Linear layers in a graph: captured once, replayed with other rows, weights and biases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from hk_backend.devices import always
from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.kernels import catalogue
from hk_backend.ops import linear
from hk_backend.terms.packed_weight import PackedWeight
from hk_backend.terms.requests import LinearRequest
from hk_backend.terms.verdict import SERVED
from tests.devices.hip.device import OnTheHost, SynchronisesInChecks
from tests.devices.hip.graph import Graph, Launch, check_replays
from tests.devices.hip.hip_calls import stream
from tests.ops.linear_cases import Case, Layer, make
from tests.ops.linear_oracle import check_result

CASES = {
    "bf16": Case("bf16", m=5, n=40, k=96, bias=torch.bfloat16),
    "split": Case("bf16", m=3, n=40, k=4096),
    "fp8 by token": Case("fp8_e4m3fn", "token", "channel", bias=torch.float32),
    "fp8 by token, split": Case("fp8_e4m3fn", "token", "channel", m=2, k=8192),
    "fp8 static": Case("fp8_e4m3fn", "tensor", "channel", static=True),
}
SPLIT = CASES["split"]
WIDER = SPLIT.but(m=33, n=300)
"""Its splits leave more sums."""


@pytest.fixture
def device(library: EmulatedLibrary, streams: dict[int, int]) -> Iterator[OnTheHost]:
    device = OnTheHost(library, catalogue("gfx950"), check=lambda *_: SERVED)
    with always(device):
        yield device


class Call:
    """A layer's call, on the current stream."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.packed: PackedWeight = layer.pack()

    def tensors(self) -> dict[str, torch.Tensor]:
        """All that the kernels read."""
        found = {"x": self.layer.x, **self.packed.tensors()}
        return found if self.layer.bias is None else {**found, "bias": self.layer.bias}

    def enqueue(self) -> torch.Tensor:
        return linear(self.layer.x, self.packed, self.layer.bias, self.layer.out_dtype)

    def check(self, out: torch.Tensor) -> None:
        check_result(self.layer, out)


@pytest.mark.parametrize("first", [True, False], ids=["first call", "later call"])
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_replays(
    case: Case, first: bool, device: OnTheHost, library: EmulatedLibrary, streams: dict[int, int]
) -> None:
    captured, others = Call(make(case)), [Call(make(case.but(seed=seed))) for seed in (1, 2)]
    left = list(others)

    def enqueue() -> torch.Tensor:
        if first:
            device.linears.forget()
        return captured.enqueue()

    launch = Launch(enqueue, captured.tensors(), lambda out: left.pop(0).check(out))
    check_replays(library, streams[0], launch, [other.tensors() for other in others])
    assert not left


def test_a_graph_keeps_its_workspace(
    device: OnTheHost, library: EmulatedLibrary, streams: dict[int, int]
) -> None:
    """Calls outside of it, also of launches that need a larger one, change nothing."""
    captured, graph = Call(make(SPLIT)), Graph(library, streams[0])
    captured.enqueue()
    with graph.capture():
        out = captured.enqueue()
    own = device.workspaces.of(0, streams[0], 0)
    for case in (SPLIT.but(seed=1), WIDER):
        other = Call(make(case))
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


def test_a_stream_without_a_workspace(
    device: OnTheHost, library: EmulatedLibrary, streams: dict[int, int]
) -> None:
    """The first one that begins with a capture gets the spare one; another is told what to do."""
    call = Call(make(SPLIT))
    call.enqueue()
    library.synchronise(streams[0])
    for is_there in (True, False):
        with current(streams, stream(library, non_blocking=True)) as mine:
            graph = Graph(library, mine)
            with graph.capture():
                if is_there:
                    out = call.enqueue()
                else:
                    with pytest.raises(DeviceError, match="call it on that stream before"):
                        call.enqueue()
            if is_there:
                graph.replay()
                call.check(out)
            else:
                assert not graph.node_types(), "and the capture is whole"
                call.enqueue()
                library.synchronise(mine)
                with graph.capture():
                    out = call.enqueue()
                graph.replay()
                call.check(out)


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_layer_that_was_loaded_can_be_captured(
    case: Case, library: EmulatedLibrary, streams: dict[int, int]
) -> None:
    """All that a first use waits for has been done: self-checks, also of what rounds activations,
    and memory that stays."""
    device = SynchronisesInChecks(library, catalogue("gfx950"))
    with always(device):
        layer = make(case)
        what = (layer.x.dtype, layer.format, case.n, case.k, layer.activations)
        request = LinearRequest("cpu", *what, case.scale_kind or None)
        assert device.verdict(request)
        call, graph = Call(layer), Graph(library, streams[0])
        with graph.capture():
            out = call.enqueue()
        graph.replay()
        call.check(out)


@contextmanager
def current(streams: dict[int, int], other: int) -> Iterator[int]:
    """Another stream as torch's current one."""
    before, streams[0] = streams[0], other
    yield other
    streams[0] = before
