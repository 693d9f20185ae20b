"""The memory that launches of a stream share: its size, its owner, and its lifetime."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest
import torch

from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.devices.hip.workspace import Workspaces
from tests.devices.hip.device import MappedMemory
from tests.devices.hip.graph import Graph
from tests.devices.hip.hip_calls import stream

KIB = 1024


@pytest.fixture
def workspaces(library: EmulatedLibrary, streams: dict[int, int]) -> Workspaces:
    return Workspaces(MappedMemory(library, 0), library)


def test_it_is_as_large_as_the_largest_that_was_reserved(
    workspaces: Workspaces, streams: dict[int, int]
) -> None:
    workspaces.reserve(0, 0)  # the workspaces of layers that never split
    assert workspaces.of(0, streams[0], 4).partial.nbytes == 4
    for size in (8 * KIB, 32 * KIB, 16 * KIB):
        workspaces.reserve(0, size)
    found = workspaces.of(0, streams[0], 4)
    assert found.partial.nbytes == 32 * KIB
    assert found is workspaces.of(0, streams[0], 32 * KIB)
    assert not found.arrived.any()


def test_each_stream_of_each_gpu_has_its_own(
    workspaces: Workspaces, library: EmulatedLibrary, streams: dict[int, int]
) -> None:
    workspaces.reserve(0, 32 * KIB)
    own, other = (workspaces.of(0, of, KIB) for of in (streams[0], stream(library)))
    assert own.partial.data_ptr() != other.partial.data_ptr()
    assert own.arrived.data_ptr() != other.arrived.data_ptr()
    assert other.partial.nbytes == 32 * KIB, "what layers that are loaded may need"
    assert workspaces.of(1, streams[1], KIB).partial.nbytes == KIB
    workspaces.reserve(1, 2 * KIB)
    assert workspaces.of(1, 0, KIB).partial.nbytes == 2 * KIB, "the null stream of another GPU"
    assert library.current_device() == 0


@pytest.mark.parametrize("used", [True, False])
def test_what_a_launch_has_got_lives_on(
    used: bool, workspaces: Workspaces, streams: dict[int, int]
) -> None:
    """A captured graph may hold the address of a launch's workspace. All other memory is given
    back."""
    workspaces.reserve(0, KIB)
    held = workspaces._of[0, streams[0]]
    if used:
        assert workspaces.of(0, streams[0], KIB) is held
    partial = weakref.ref(held.partial)
    del held
    workspaces.reserve(0, 2 * KIB)
    assert workspaces.of(0, streams[0], KIB).partial.nbytes == 2 * KIB
    assert (partial() is not None) == used


def test_a_weight_is_loaded_again_after_inference(
    workspaces: Workspaces, streams: dict[int, int]
) -> None:
    """torch refuses to write to a tensor of inference mode outside of it. The counters are zero
    again, since an engine that slept has given its memory away."""
    with torch.inference_mode():
        workspaces.of(0, streams[0], KIB).arrived.fill_(1)
    workspaces.reserve(0, 2 * KIB)
    workspaces.of(0, streams[0], KIB).arrived.fill_(3)
    with torch.inference_mode():
        workspaces.reserve(0, KIB)
    assert not workspaces.of(0, streams[0], KIB).arrived.any()


@pytest.mark.parametrize(
    "zero", [lambda of: of.reserve(0, 2 * KIB), Workspaces.restore], ids=["reserve", "restore"]
)
def test_counters_that_only_a_graph_knows_are_zeroed(
    zero: Callable[[Workspaces], None], workspaces: Workspaces, streams: dict[int, int]
) -> None:
    """A graph replays with the workspace of its capture, though a larger one has replaced it."""
    workspaces.reserve(0, KIB)
    replaced = workspaces.of(0, streams[0], KIB)
    workspaces.reserve(0, 2 * KIB)
    others = replaced.arrived, workspaces._spare[0].arrived
    for arrived in others:
        arrived.fill_(3)
    zero(workspaces)
    assert not any(arrived.any() for arrived in others)


def test_the_counters_of_every_stream_and_gpu_are_restored(
    library: EmulatedLibrary, streams: dict[int, int]
) -> None:
    for index in (0, 1):
        workspaces = Workspaces(MappedMemory(library, index), library)
        workspaces.restore()  # nothing has been used yet
        found = [workspaces.of(index, of, KIB) for of in (streams[index], 0)]
        with torch.inference_mode():
            for each in found:
                each.arrived.fill_(3)
        workspaces.restore()
        assert not any(each.arrived.any() for each in found)
    assert library.current_device() == 0


def test_the_spare_one_is_for_a_capture(
    workspaces: Workspaces, library: EmulatedLibrary, streams: dict[int, int]
) -> None:
    """A capture that needs more than the spare workspace has is refused."""
    workspaces.reserve(0, KIB)
    graph = Graph(library, stream(library, non_blocking=True))
    with graph.capture(), pytest.raises(DeviceError, match="call it on that stream before"):
        workspaces.of(0, graph.stream, 2 * KIB)
    workspaces.reserve(0, 2 * KIB)
    with graph.capture():
        spare = workspaces.of(0, graph.stream, 2 * KIB)
        with pytest.raises(DeviceError, match="call it on that stream before"):
            workspaces.of(0, graph.stream, 4 * KIB)
    assert workspaces.of(0, graph.stream, 2 * KIB) is spare
    assert workspaces.of(0, graph.stream, 4 * KIB) is not spare
    assert torch.equal(spare.arrived, torch.zeros_like(spare.arrived))
