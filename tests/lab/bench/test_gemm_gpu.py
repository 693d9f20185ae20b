"""Timed launches of gemm kernels, on the emulated GPU. Only the stopwatch is a stand-in, as nothing
takes time there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch

from hk_backend.devices.hip.call import KernelCall
from hk_backend.devices.hip.device import HipDevice
from hk_backend.devices.hip.emulated import LIBRARY, EmulatedLibrary, make_device
from hk_backend.kernels import catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.gemm_operands import LAYERS, Operands, family
from hk_backend.kernels.gemm_plan import candidates
from hk_backend.lab.bench.gemm import gpu
from hk_backend.lab.bench.gemm.gpu import Call, Gpu
from hk_backend.lab.bench.gemm.timers import Problem
from hk_backend.terms.verdict import refused

KERNELS = catalogue("gfx950")
FORMATS = sorted({of for of in LAYERS.values() if family(KERNELS, of)})
M, N, K = 3, 40, 1024


@pytest.fixture
def device() -> HipDevice:
    library = EmulatedLibrary(LIBRARY)
    library.reset("gfx950")
    return make_device(library, KERNELS)


def splitting(of: Operands) -> tuple[KernelEntry, int]:
    """A kernel, and into how many splits it may divide the depth: at least two."""
    found = max(candidates(family(KERNELS, of), M, N, K, 256), key=lambda each: each.splits)
    assert found.splits > 1
    return found.entry, found.splits


@pytest.mark.parametrize("of", FORMATS, ids=" ".join)
@pytest.mark.parametrize("footprint", [1, 3])
def test_what_is_timed_are_the_launches_of_a_layer(
    of: Operands, footprint: int, device: HipDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stopwatch gets as many launches as it needs, of this kernel and these splits. Each takes
    the next copy of the weight, and computes."""
    entry, splits = splitting(of)
    launched: list[KernelCall] = []
    launch = device.launch

    def note(call: KernelCall, index: int) -> None:
        launched.append(call)
        launch(call, index)

    monkeypatch.setattr(gpu, "LAUNCHES", 4)

    def watch(calls: Sequence[Call]) -> float:
        monkeypatch.setattr(device, "launch", note)
        for call in calls:
            call()
        return 7.5

    timer = Gpu(device, "emulated", watch, footprint * weight_bytes(of))
    assert (timer.arch, timer.compute_units) == ("gfx950", device.compute_units(0))
    assert timer.microseconds(entry, splits, Problem(of, M, N, K)) == 7.5
    assert {call.kernels for call in launched} == {(entry,)}
    assert {call.numbers["splits"] for call in launched} == {splits}
    copies = [call.tensors["b"].data_ptr() for call in launched]
    assert len(copies) == 4
    assert copies == copies[:footprint] * (4 // footprint) + copies[: 4 % footprint]
    assert len(set(copies)) == footprint
    for call in launched:
        assert call.tensors["c"].isfinite().all()
        assert call.tensors["c"].any()
        assert torch.equal(call.tensors["c"], launched[0].tensors["c"]), "the same weight"


def weight_bytes(of: Operands) -> int:
    codes = -(-N // 16) * 16 * K * of.bits[1] // 8
    scales = -(-N // 32) * K if of.weights_are_mx else 0  # one of 32 elements, for each 32 rows
    return codes + scales


class PretendedCuda:
    """A stand-in for torch.cuda in timing: every launch takes 2 us once it is warm."""

    def __init__(self) -> None:
        self.now = 0.0
        self.replays = 0
        self.captured: list[Call] | None = None

    def launch(self) -> None:
        if self.captured is None:
            self.now += 1000  # nobody times launches outside of the graph
        else:
            self.captured.append(self.launch)

    def synchronize(self) -> None:
        """Returns at once: launches here end at once."""

    def CUDAGraph(self) -> PretendedCuda:
        return self

    @contextmanager
    def graph(self, graph: PretendedCuda) -> Iterator[None]:
        assert graph is self
        self.captured = []
        yield

    def replay(self) -> None:
        assert self.captured
        self.replays += 1
        self.now += len(self.captured) * (500 if self.replays == 1 else 2)

    def Event(self, enable_timing: bool) -> PretendedEvent:
        assert enable_timing
        return PretendedEvent(self)


class PretendedEvent:
    def __init__(self, cuda: PretendedCuda) -> None:
        self._cuda = cuda
        self.at = float("nan")

    def record(self) -> None:
        self.at = self._cuda.now

    def synchronize(self) -> None:
        """Returns at once: the event has happened."""

    def elapsed_time(self, end: PretendedEvent) -> float:
        """The time between two events in milliseconds."""
        return (end.at - self.at) / 1e3


@pytest.mark.parametrize("launches", [1, 24])
def test_a_graph_s_replays_are_timed(launches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is microseconds of one launch. Neither the work before the capture nor the first
    replay counts."""
    cuda = PretendedCuda()
    monkeypatch.setattr(torch, "cuda", cuda)
    assert gpu.by_graph([cuda.launch] * launches) == pytest.approx(2.0)
    assert cuda.captured is not None
    assert len(cuda.captured) == launches
    assert cuda.replays == 1 + gpu.ROUNDS


def test_a_kernel_that_fails_its_self_check_is_not_timed(
    device: HipDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "verify", lambda *_: refused("it computes something else"))
    entry, splits = splitting(LAYERS["bf16"])
    with pytest.raises(RuntimeError, match="it computes something else"):
        Gpu(device, "emulated").microseconds(entry, splits, Problem(LAYERS["bf16"], M, N, K))
