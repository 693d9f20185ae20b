"""The launcher's prepared and repeated launches (csrc/hip), with tensors that are on the GPU."""

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
"""Numbers of each piece of memory; rows of 8 of the tensor that a launch was made for."""
OUT, VALUE, BLOCKS, COUNT = (OFFSETS[n] for n in ("results", "bytes", "workgroups", "steps"))
ARGUMENT = bytes(FILL_STRUCT.size)
"""The struct of `fill`."""


@pytest.fixture(autouse=True)
def of_the_gpu() -> Iterator[None]:
    assert _hip.read_tensors_of(GpuTensor)  # type: ignore[arg-type]
    yield
    _hip.read_tensors_of(torch.Tensor)


class OnGpu:
    """The kernel `fill`, and memory for what it writes."""

    def __init__(self, library: EmulatedLibrary, small: Catalogue, index: int = 0) -> None:
        self.library, self.index = library, index
        with library.current(index):
            self.out = malloc(library, 4 * ROOM)
        self.kernel = HipKernels(library).load(small.kernel("fill"), index)

    def tensor(self, rows: int = ROWS, row: int = 8, **more: Any) -> Any:
        return GpuTensor(self.out, (rows, 8), (row, 1), **{"index": self.index, **more})

    def numbers(self, count: int = ROOM) -> list[int]:
        """It waits."""
        with self.library.current(self.index):
            return list(read(self.library, self.out, ROOM))[:count]


class Fill(OnGpu):
    """Prepared for a tensor of `ROWS` rows."""

    def __init__(self, *where: Any, index: int = 0, **changes: Any) -> None:
        super().__init__(*where, index)
        given = {
            "argument": ARGUMENT,
            "step_places": [(VALUE, 4), (BLOCKS, 4), (COUNT, 4)],
            "tensors": [(self.tensor(), OUT, False)],
            "alignment": 16,
        }
        self.native = _hip.Prepared([self.kernel], **{**given, **changes})

    def step(self, value: int, count: int, rows: int = 1) -> _hip.Step:
        return _hip.Step(self.index, [value, -(-count // BLOCK), count], rows)

    def filled(self, value: int, begin: int = 0) -> int:
        """How many numbers from `begin` on are `value`."""
        found = self.numbers()[begin:]
        return next((i for i, number in enumerate(found) if number != value), len(found))


def test_a_step_s_values_and_a_tensor_s_address(library: EmulatedLibrary, small: Catalogue) -> None:
    """The grid follows the step; an address counts from the byte offset."""
    fill = Fill(library, small)
    assert fill.native.launch(fill.step(7, 300), 0, (fill.tensor(),))
    assert fill.filled(7) == 300
    assert fill.native.launch(fill.step(-5, 20), 0, (fill.tensor(byte_offset=1600),))
    assert fill.filled(-5, begin=400) == 20
    assert not fill.native.launch(fill.step(1, 20), 0, (fill.tensor(byte_offset=8),)), "alignment"


def test_each_stream_of_a_step_is_checked(library: EmulatedLibrary, small: Catalogue) -> None:
    """One step is launched by many layers, perhaps on several streams."""
    fill, tensors = Fill(library, small), (Fill(library, small).tensor(),)
    one, two = stream(library), stream(library)
    with library.current(1):
        foreign = stream(library)
    step = fill.step(1, 1)
    for own in (one, two, 0, one):
        assert fill.native.launch(step, own, tensors)
    for own in (one, two):
        with pytest.raises(DeviceError, match="is of device 1, tensors of 0"):
            fill.native.launch(step, foreign, tensors)
        assert fill.native.launch(step, own, tensors)
    assert library.launch_calls() == 6


def test_a_launch_on_a_device_that_is_not_the_current_one(
    library: EmulatedLibrary, small: Catalogue
) -> None:
    """The null stream is that of the kernel's device."""
    fill = Fill(library, small, index=1)
    assert fill.native.launch(fill.step(4, 100), 0, (fill.tensor(),))
    assert fill.filled(4) == 100
    assert library.current_device() == 0


def test_what_was_not_prepared_for(library: EmulatedLibrary, small: Catalogue) -> None:
    fill = Fill(library, small)
    step = fill.step(1, 8)
    assert not fill.native.launch(step, 0, (fill.tensor(index=1),)), "another GPU's tensor"
    assert not fill.native.launch(_hip.Step(1, [1, 1, 8], 1), 0, (fill.tensor(),))
    assert not fill.native.launch(_hip.Step(0, [1, 1], 1), 0, (fill.tensor(),))
    assert not fill.native.launch(_hip.Step(0, [1, 1, 8, 8], 1), 0, (fill.tensor(),))
    for tensors, addresses in (((), None), ((fill.tensor(),) * 2, None), ((fill.tensor(),), [])):
        with pytest.raises(ValueError, match=r"^tensors: \d are not valid: expected 1"):
            fill.native.launch(step, 0, tensors, addresses)
    assert library.launch_calls() == 0


def test_rows_of_one_token(library: EmulatedLibrary, small: Catalogue) -> None:
    """A lone row has any stride: so nothing was prepared for the stride of several."""
    fill = Fill(library, small)
    assert fill.native.launch(fill.step(1, 8), 0, (fill.tensor(rows=1, row=3),))
    lone = Fill(library, small, tensors=[(fill.tensor(rows=1, row=16), OUT, False)])
    assert lone.native.launch(fill.step(1, 8), 0, (fill.tensor(rows=1),))
    assert not lone.native.launch(fill.step(1, 8), 0, (fill.tensor(rows=5, row=16),))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"argument": bytes(1025)}, "argument: too large"),
        ({"step_places": [(VALUE, 4), (FILL_STRUCT.size - 4, 8)]}, "outside the argument"),
        ({"step_places": [(VALUE, 4), (FILL_STRUCT.size, 1)]}, "outside the argument"),
        ({"step_places": [(0, 16), (COUNT, 4)]}, "outside the argument"),
        (
            {"tensors": [(GpuTensor(0, (5, 8), (8, 1)), FILL_STRUCT.size - 7, False)]},
            "a tensor outside the argument",
        ),
        ({"tensors": [(GpuTensor(0, (), ()), 0, False)]}, "a tensor outside the argument"),
        ({"tensors": [(GpuTensor(0, (5,), (1,)), 0, False)] * 17}, "tensors: too many"),
    ],
)
def test_what_cannot_be_prepared(
    changes: dict[str, Any], why: str, library: EmulatedLibrary, small: Catalogue
) -> None:
    with pytest.raises(ValueError, match=why):
        Fill(library, small, **changes)


def argument(value: int, count: int) -> bytes:
    return FILL_STRUCT.pack(fill_values(None, value, count))


class Fills(OnGpu):
    """8 times 1 into a tensor, and behind it 4 times 2, in two launches that are repeated."""

    def __init__(self, *where: Any, index: int = 0, **changes: Any) -> None:
        super().__init__(*where, index)
        given = {
            "launches": [
                (self.kernel, argument(1, 8), [(0, 0, OUT)]),
                (self.kernel, argument(2, 4), [(0, 32, OUT)]),
            ],
            "tensors": (self.tensor(), None),
            "exact": 1,
            "alignment": 16,
        }
        self.native = _hip.Repeated(**{**given, **changes})


def test_bytes_of_a_tensor(library: EmulatedLibrary, small: Catalogue) -> None:
    """One launch after the other; the tensor's own offset counts, too."""
    fills = Fills(library, small)
    assert fills.native.launch(0, (fills.tensor(), None))
    assert fills.numbers(12) == [1] * 8 + [2] * 4
    assert fills.native.launch(0, (fills.tensor(byte_offset=1600), None))
    assert fills.numbers(412)[400:] == [1] * 8 + [2] * 4
    assert library.launch_calls() == 4


def test_what_a_repeated_launch_is_not_for(library: EmulatedLibrary, small: Catalogue) -> None:
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
    for given, addresses in (((), None), ((own,), None), ((own, None), [0])):
        with pytest.raises(ValueError, match=r"^tensors: \d are not valid: expected 2"):
            fills.native.launch(0, given, addresses)
    with library.current(1):
        foreign = stream(library)
    with pytest.raises(DeviceError, match="is of device 1, tensors of 0"):
        fills.native.launch(foreign, (own, None))
    assert library.launch_calls() == 0
    longer = Fills(library, small, exact=0).native  # a tensor that may be longer, as a workspace
    assert not longer.launch(0, (fills.tensor(rows=ROWS - 1), None))
    assert longer.launch(0, (fills.tensor(rows=ROWS + 1), None))


def test_threads_share_it(library: EmulatedLibrary, small: Catalogue) -> None:
    """Each on a stream and a tensor of its own."""
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
        ({"tensors": (None,) * 17}, "tensors: too many"),
        ({"tensors": (None, None)}, "a tensor outside the argument"),
        ({"tensors": (GpuTensor(0, (), ()),)}, "a tensor without an axis"),
    ],
)
def test_what_cannot_be_made(
    changes: dict[str, Any], why: str, library: EmulatedLibrary, small: Catalogue
) -> None:
    with pytest.raises(ValueError, match=why):
        Fills(library, small, **changes)


@pytest.mark.parametrize(
    ("packed", "patch", "why"),
    [
        (bytes(1025), (0, 0, 0), "argument: too large"),
        (bytes(16), (0, 0, 9), "a tensor outside the argument"),
        (bytes(16), (1, 0, 0), "a tensor outside the argument"),
        (bytes(16), (2, 0, 0), "a tensor outside the argument"),
    ],
)
def test_launches_that_cannot_be_made(
    packed: bytes,
    patch: tuple[int, int, int],
    why: str,
    library: EmulatedLibrary,
    small: Catalogue,
) -> None:
    kernel = HipKernels(library).load(small.kernel("fill"), 0)
    with pytest.raises(ValueError, match=why):
        Fills(library, small, launches=[(kernel, packed, [patch])])
