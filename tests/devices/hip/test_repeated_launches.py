"""The launcher's repeated launches (csrc/hip/repeated.hpp), with tensors that are on the GPU."""

from __future__ import annotations

import struct
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
from tests.devices.hip.hip_calls import malloc, read, stream

ROOM, ROWS = 512, 5
"""Numbers of each piece of memory; rows of 8 of the tensor that a launch was made for."""
OUT = 0
"""Offset of the address in the struct of `fill`, before the value and the count."""


@pytest.fixture(autouse=True)
def of_the_gpu() -> Iterator[None]:
    assert _hip.read_tensors_of(GpuTensor)  # type: ignore[arg-type]
    yield
    _hip.read_tensors_of(torch.Tensor)


def argument(value: int, count: int) -> bytes:
    return struct.pack("<Qii", 0, value, count)


class Fills:
    """8 times 1 into a tensor, and behind it 4 times 2, in two launches."""

    def __init__(
        self, library: EmulatedLibrary, small: Catalogue, index: int = 0, **changes: Any
    ) -> None:
        self.library, self.index = library, index
        with library.current(index):
            self.out = malloc(library, 4 * ROOM)
        kernel = HipKernels(library).load(small.kernel("fill"), index)
        given = {
            "launches": [
                (kernel, {"count": 8}, argument(1, 8), [(0, 0, OUT)]),
                (kernel, {"count": 4}, argument(2, 4), [(0, 32, OUT)]),
            ],
            "tensors": (self.tensor(), None),
            "exact": 1,
            "alignment": 16,
        }
        self.native = _hip.Repeated(**{**given, **changes})

    def tensor(self, rows: int = ROWS, row: int = 8, **more: Any) -> Any:
        return GpuTensor(self.out, (rows, 8), (row, 1), **{"index": self.index, **more})

    def numbers(self) -> list[int]:
        """It waits."""
        with self.library.current(self.index):
            return list(read(self.library, self.out, ROOM))


def test_bytes_of_a_tensor(library: EmulatedLibrary, small: Catalogue) -> None:
    """One launch after the other; the tensor's own offset counts, too."""
    fills = Fills(library, small)
    assert fills.native.launch(0, (fills.tensor(), None))
    assert fills.numbers()[:12] == [1] * 8 + [2] * 4
    assert fills.native.launch(0, (fills.tensor(byte_offset=1600), None))
    assert fills.numbers()[400:412] == [1] * 8 + [2] * 4
    assert library.launch_calls() == 4


def test_a_device_that_is_not_the_current_one(library: EmulatedLibrary, small: Catalogue) -> None:
    fills = Fills(library, small, index=1)
    assert fills.native.launch(0, (fills.tensor(), None))
    assert fills.numbers()[:8] == [1] * 8
    assert library.current_device() == 0


def test_addresses_of_a_device_that_finds_tensors_elsewhere(
    library: EmulatedLibrary, small: Catalogue
) -> None:
    fills = Fills(library, small)
    elsewhere: Any = GpuTensor(64, (ROWS, 8), (8, 1))
    assert fills.native.launch(0, (elsewhere, None), [fills.out, 0])
    assert fills.numbers()[:8] == [1] * 8


def test_what_it_was_not_made_for(library: EmulatedLibrary, small: Catalogue) -> None:
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


def test_tensors_that_may_be_longer(library: EmulatedLibrary, small: Catalogue) -> None:
    fills = Fills(library, small, exact=0)
    assert fills.native.launch(0, (fills.tensor(rows=ROWS + 1), None))
    assert not fills.native.launch(0, (fills.tensor(rows=ROWS - 1), None))


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
    ("sizes", "packed", "patch", "why"),
    [
        ({}, bytes(16), (0, 0, 0), "grid formula: no value for count"),
        ({"count": 8}, bytes(1025), (0, 0, 0), "argument: too large"),
        ({"count": 8}, bytes(16), (0, 0, 9), "a tensor outside the argument"),
        ({"count": 8}, bytes(16), (1, 0, 0), "a tensor outside the argument"),
        ({"count": 8}, bytes(16), (2, 0, 0), "a tensor outside the argument"),
    ],
)
def test_launches_that_cannot_be_made(
    sizes: dict[str, int],
    packed: bytes,
    patch: tuple[int, int, int],
    why: str,
    library: EmulatedLibrary,
    small: Catalogue,
) -> None:
    kernel = HipKernels(library).load(small.kernel("fill"), 0)
    with pytest.raises(ValueError, match=why):
        Fills(library, small, launches=[(kernel, sizes, packed, [patch])])
