"""The launcher's recordings of launches (csrc/hip), with tensors on the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from hk_backend import _hip
from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.devices.hip.modules import HipKernels
from hk_backend.kernels import Catalogue
from tests.devices.hip.gpu_tensor import GpuTensor
from tests.devices.hip.hip_calls import FILL_STRUCT, OFFSETS, fill_values, malloc, read, stream
from tests.devices.hip.small_kernels import BLOCK

ROOM, ROWS = 512, 5
"""Numbers in each piece of memory; rows, of 8 numbers, of a recording's tensor."""
OUT, VALUE, BLOCKS, COUNT = (OFFSETS[n] for n in ("results", "bytes", "workgroups", "steps"))
ARGUMENT = bytes(FILL_STRUCT.size)
"""Zeros for the struct of `fill`."""


@pytest.fixture(autouse=True)
def of_the_gpu() -> Iterator[None]:
    assert _hip.read_tensors_of(GpuTensor)  # type: ignore[arg-type]
    yield
    _hip.read_tensors_of(torch.Tensor)


class OnGpu:
    """The kernel `fill` on the GPU, and memory for the numbers that it writes."""

    def __init__(self, library: EmulatedLibrary, small: Catalogue, index: int = 0) -> None:
        self.library, self.index = library, index
        with library.current(index):
            self.out = malloc(library, 4 * ROOM)
        self.kernel = HipKernels(library).load(small.kernel("fill"), index)

    def tensor(self, rows: int = ROWS, row: int = 8, **more: Any) -> Any:
        return GpuTensor(self.out, (rows, 8), (row, 1), **{"index": self.index, **more})

    def numbers(self, count: int = ROOM) -> list[int]:
        """The memory's numbers, after a wait for the GPU."""
        with self.library.current(self.index):
            return list(read(self.library, self.out, ROOM))[:count]


class Fill(OnGpu):
    """A recording of `fill` for a tensor of `ROWS` rows. A step gives the value and the count."""

    def __init__(self, *where: Any, index: int = 0, like: Any = None) -> None:
        super().__init__(*where, index)
        values = [(0, VALUE, 4), (1, BLOCKS, 4), (2, COUNT, 4)]
        launch = (self.kernel, ARGUMENT, [(0, 0, OUT)], values)
        self.native = _hip.Recording([launch], [(like or self.tensor(), False)], 16)

    def step(self, value: int, count: int, rows: int = 1) -> _hip.Step:
        return _hip.Step(self.index, [value, -(-count // BLOCK), count], rows)

    def filled(self, value: int, begin: int = 0) -> int:
        """The number of consecutive values, starting at `begin`, that equal `value`."""
        found = self.numbers()[begin:]
        return next((i for i, number in enumerate(found) if number != value), len(found))


def test_a_step_s_values_and_a_tensor_s_address(library: EmulatedLibrary, small: Catalogue) -> None:
    """The grid follows the step; the address includes the tensor's byte offset."""
    fill = Fill(library, small)
    assert fill.native.launch(0, (fill.tensor(),), fill.step(7, 300))
    assert fill.filled(7) == 300
    assert fill.native.launch(0, (fill.tensor(byte_offset=1600),), fill.step(-5, 20))
    assert fill.filled(-5, begin=400) == 20
    assert not fill.native.launch(0, (fill.tensor(byte_offset=8),), fill.step(1, 20)), "alignment"


def test_each_stream_of_a_step_is_checked(library: EmulatedLibrary, small: Catalogue) -> None:
    """Many layers launch one step, perhaps on several streams."""
    fill, tensors = Fill(library, small), (Fill(library, small).tensor(),)
    one, two = stream(library), stream(library)
    with library.current(1):
        foreign = stream(library)
    step = fill.step(1, 1)
    for own in (one, two, 0, one):
        assert fill.native.launch(own, tensors, step)
    for own in (one, two):
        with pytest.raises(DeviceError, match="is of device 1, tensors of 0"):
            fill.native.launch(foreign, tensors, step)
        assert fill.native.launch(own, tensors, step)
    assert library.launch_calls() == 6


def test_a_launch_on_a_device_that_is_not_the_current_one(
    library: EmulatedLibrary, small: Catalogue
) -> None:
    """The null stream is that of the kernel's device."""
    fill = Fill(library, small, index=1)
    assert fill.native.launch(0, (fill.tensor(),), fill.step(4, 100))
    assert fill.filled(4) == 100
    assert library.current_device() == 0


def test_steps_and_rows_that_a_recording_is_not_for(
    library: EmulatedLibrary, small: Catalogue
) -> None:
    fill = Fill(library, small)
    own = (fill.tensor(),)
    assert not fill.native.launch(0, own), "no step"
    assert not fill.native.launch(0, own, _hip.Step(1, [1, 1, 8], 1)), "another GPU's"
    assert not fill.native.launch(0, own, _hip.Step(0, [1, 1], 1))
    assert not fill.native.launch(0, own, fill.step(1, 8, rows=ROWS + 1))
    assert library.launch_calls() == 0
    assert fill.native.launch(0, own, _hip.Step(0, [1, 1, 8, 8], ROWS)), "a value for others"
    assert fill.native.launch(0, (fill.tensor(rows=2),), fill.step(1, 8, rows=2))


def test_rows_of_one_token(library: EmulatedLibrary, small: Catalogue) -> None:
    """A lone row may have any stride, so no recording for several rows is made of it."""
    fill = Fill(library, small)
    assert fill.native.launch(0, (fill.tensor(rows=1, row=3),), fill.step(1, 8))
    lone = Fill(library, small, like=fill.tensor(rows=1, row=16))
    assert lone.native.launch(0, (fill.tensor(rows=1),), fill.step(1, 8))
    assert not lone.native.launch(0, (fill.tensor(rows=5, row=16),), fill.step(1, 8))


def argument(value: int, count: int) -> bytes:
    return FILL_STRUCT.pack(fill_values(None, value, count))


class Fills(OnGpu):
    """Two recorded launches without a step: 8 times 1 into a tensor, and 4 times 2 behind it."""

    def __init__(self, *where: Any, index: int = 0, exact: bool = True, **changes: Any) -> None:
        super().__init__(*where, index)
        given = {
            "launches": [
                (self.kernel, argument(1, 8), [(0, 0, OUT)], []),
                (self.kernel, argument(2, 4), [(0, 32, OUT)], []),
            ],
            "tensors": [(self.tensor(), exact), (None, exact)],
            "alignment": 16,
        }
        self.native = _hip.Recording(**{**given, **changes})


def test_bytes_of_a_tensor(library: EmulatedLibrary, small: Catalogue) -> None:
    """The launches follow each other, and each adds the tensor's own offset."""
    fills = Fills(library, small)
    assert fills.native.launch(0, (fills.tensor(), None))
    assert fills.numbers(12) == [1] * 8 + [2] * 4
    assert fills.native.launch(0, (fills.tensor(byte_offset=1600), None))
    assert fills.numbers(412)[400:] == [1] * 8 + [2] * 4
    assert library.launch_calls() == 4


def test_tensors_that_a_recording_is_not_for(library: EmulatedLibrary, small: Catalogue) -> None:
    fills = Fills(library, small)
    own = fills.tensor()
    for tensors in (
        (None, None),
        (own, own),
        (fills.tensor(index=1), None),
        (fills.tensor(rows=ROWS + 1), None),
        (fills.tensor(rows=ROWS - 1), None),
        (fills.tensor(row=16), None),
        (fills.tensor(byte_offset=8), None),
    ):
        assert not fills.native.launch(0, tensors)
    for given, addresses in (((), None), ((own,), None), ((own, None), [0]), ((own,) * 3, None)):
        with pytest.raises(ValueError, match=r"^tensors: \d are not valid: expected 2"):
            fills.native.launch(0, given, None, addresses)
    with library.current(1):
        foreign = stream(library)
    with pytest.raises(DeviceError, match="is of device 1, tensors of 0"):
        fills.native.launch(foreign, (own, None))
    assert library.launch_calls() == 0
    longer = Fills(library, small, exact=False).native  # a tensor may be longer, like a workspace
    assert not longer.launch(0, (fills.tensor(rows=ROWS - 1), None))
    assert longer.launch(0, (fills.tensor(rows=ROWS + 1), None))


def test_threads_share_it(library: EmulatedLibrary, small: Catalogue) -> None:
    """Each thread uses a stream and a tensor of its own."""
    fills = Fills(library, small)
    places = [malloc(library, 64) for _ in range(4)]
    streams = [stream(library) for _ in places]

    def launch(number: int) -> bool:
        tensor: Any = GpuTensor(places[number], (ROWS, 8), (8, 1))
        return all(fills.native.launch(streams[number], (tensor, None)) for _ in range(200))

    with ThreadPoolExecutor(len(places)) as pool:
        assert all(pool.map(launch, range(len(places))))
    for own, place in zip(streams, places, strict=True):
        library.synchronise(own)
        assert list(read(library, place, 12)) == [1] * 8 + [2] * 4


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"launches": []}, "launches: none"),
        ({"tensors": [(None, True)] * 17}, "tensors: too many"),
        ({"tensors": [(None, True)] * 2}, "a tensor outside the argument"),
        ({"tensors": [(GpuTensor(0, (), ()), True)]}, "a tensor without an axis"),
    ],
)
def test_tensors_that_cannot_be_recorded(
    changes: dict[str, Any], why: str, library: EmulatedLibrary, small: Catalogue
) -> None:
    with pytest.raises(ValueError, match=why):
        Fills(library, small, **changes)


@pytest.mark.parametrize(
    ("packed", "addresses", "values", "why"),
    [
        (bytes(1025), [], [], "argument: too large"),
        (ARGUMENT, [(0, 0, FILL_STRUCT.size - 7)], [], "a tensor outside the argument"),
        (ARGUMENT, [(1, 0, OUT)], [], "a tensor outside the argument"),
        (ARGUMENT, [(2, 0, OUT)], [], "a tensor outside the argument"),
        (ARGUMENT, [], [(0, FILL_STRUCT.size - 4, 8)], "a value outside the argument"),
        (ARGUMENT, [], [(0, FILL_STRUCT.size, 1)], "a value outside the argument"),
        (ARGUMENT, [], [(0, 0, 16)], "a value outside the argument"),
    ],
)
def test_launches_that_cannot_be_recorded(
    packed: bytes,
    addresses: list[_hip.Numbers],
    values: list[_hip.Numbers],
    why: str,
    library: EmulatedLibrary,
    small: Catalogue,
) -> None:
    kernel = HipKernels(library).load(small.kernel("fill"), 0)
    with pytest.raises(ValueError, match=why):
        Fills(library, small, launches=[(kernel, packed, addresses, values)])


def test_launches_on_two_gpus_cannot_be_recorded(
    library: EmulatedLibrary, small: Catalogue
) -> None:
    kernels = HipKernels(library)
    of_two = [kernels.load(small.kernel("fill"), index) for index in (0, 1)]
    with pytest.raises(ValueError, match="launches: of several devices"):
        Fills(library, small, launches=[(kernel, ARGUMENT, [], []) for kernel in of_two])
