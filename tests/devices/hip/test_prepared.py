"""The launcher's prepared launch (csrc/hip/prepared.hpp), with tensors that are on the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from hk_backend import _hip
from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.devices.hip.modules import HipKernels
from hk_backend.kernels import Catalogue
from tests.devices.hip import gpu_tensor
from tests.devices.hip.gpu_tensor import GpuTensor
from tests.devices.hip.hip_calls import malloc, read, stream

ROOM = 512
"""Numbers of each piece of memory."""
OUT, VALUE, COUNT, ARGUMENT = 0, 8, 12, bytes(16)
"""The struct of `fill`."""


@pytest.fixture(autouse=True)
def of_the_gpu() -> Iterator[None]:
    assert _hip.read_tensors_of(GpuTensor)  # type: ignore[arg-type]
    yield
    _hip.read_tensors_of(torch.Tensor)


class Fill:
    """`fill`, prepared for a tensor of `rows` rows of 8."""

    def __init__(
        self, library: EmulatedLibrary, small: Catalogue, index: int = 0, **changes: Any
    ) -> None:
        self.library = library
        self.index = index
        with library.current(index):
            self.out = malloc(library, 4 * ROOM)
        given = {
            "argument": ARGUMENT,
            "step_places": [(VALUE, 4), (COUNT, 4)],
            "step_grid": {"count": 1},
            "sizes": {},
            "tensors": [(self.tensor(), OUT, False)],
            "alignment": 16,
        }
        kernel = HipKernels(library).load(small.kernel("fill"), index)
        self.native = _hip.Prepared([kernel], **{**given, **changes})

    def tensor(self, rows: int = 5, row: int = 8, **more: Any) -> Any:
        return GpuTensor(self.out, (rows, 8), (row, 1), **{"index": self.index, **more})

    def step(self, value: int, count: int, rows: int = 1) -> _hip.Step:
        return _hip.Step(self.index, [value, count], rows)

    def filled(self, value: int, begin: int = 0) -> int:
        """How many numbers from `begin` on are `value`; it waits."""
        with self.library.current(self.index):
            found = read(self.library, self.out, ROOM)[begin:]
        return next((i for i, number in enumerate(found) if number != value), len(found))


def test_a_step_s_values_and_a_tensor_s_address(library: EmulatedLibrary, small: Catalogue) -> None:
    """The grid follows the step; an address counts from the byte offset."""
    fill = Fill(library, small)
    assert fill.native.launch(fill.step(7, 300), 0, (fill.tensor(),))
    assert fill.filled(7) == 300
    assert fill.native.launch(fill.step(-5, 20), 0, (fill.tensor(byte_offset=1600),))
    assert fill.filled(-5, begin=400) == 20
    assert not fill.native.launch(fill.step(1, 20), 0, (fill.tensor(byte_offset=8),)), "alignment"


def test_values_of_eight_bytes_and_a_grid_of_its_own(
    library: EmulatedLibrary, small: Catalogue
) -> None:
    changes = {"step_places": [(VALUE, 8), (0, 0)], "step_grid": {}, "sizes": {"count": 200}}
    fill = Fill(library, small, **changes)
    assert fill.native.launch(fill.step(200 << 32 | 9, 1), 0, (fill.tensor(),))
    assert fill.filled(9) == 200


def test_addresses_of_a_device_that_finds_tensors_elsewhere(
    library: EmulatedLibrary, small: Catalogue
) -> None:
    fill = Fill(library, small)
    elsewhere = GpuTensor(64, (5, 8), (8, 1))
    assert fill.native.launch(fill.step(3, 64), 0, (elsewhere,), [fill.out])  # type: ignore[arg-type]
    assert fill.filled(3) == 64


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
    assert not fill.native.launch(_hip.Step(1, [1, 8], 1), 0, (fill.tensor(),))
    assert not fill.native.launch(_hip.Step(0, [1], 1), 0, (fill.tensor(),))
    assert not fill.native.launch(_hip.Step(0, [1, 8, 8], 1), 0, (fill.tensor(),))
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
        ({"step_places": [(VALUE, 4), (COUNT, 8)]}, "outside the argument"),
        ({"step_places": [(VALUE, 4), (16, 1)]}, "outside the argument"),
        ({"step_places": [(0, 16), (COUNT, 4)]}, "outside the argument"),
        ({"step_grid": {"count": 2}}, "no such value: count"),
        ({"step_grid": {}}, "grid formula: no value for count"),
        ({"tensors": [(GpuTensor(0, (5, 8), (8, 1)), 9, False)]}, "a tensor outside the argument"),
        ({"tensors": [(GpuTensor(0, (), ()), 0, False)]}, "a tensor outside the argument"),
        ({"tensors": [(GpuTensor(0, (5,), (1,)), 0, False)] * 17}, "tensors: too many"),
    ],
)
def test_what_cannot_be_prepared(
    changes: dict[str, Any], why: str, library: EmulatedLibrary, small: Catalogue
) -> None:
    with pytest.raises(ValueError, match=why):
        Fill(library, small, **changes)


def test_a_table_of_a_version_to_come_has_ours_behind_it() -> None:
    newer = gpu_tensor.table(gpu_tensor.MAJOR + 1, gpu_tensor.Read(), older=gpu_tensor.TABLE)
    alone = gpu_tensor.table(gpu_tensor.MAJOR + 1, gpu_tensor.Read())

    def of(table: gpu_tensor.Table) -> Any:
        return type("Of", (), {"__dlpack_c_exchange_api__": gpu_tensor.capsule(table)})

    assert _hip.read_tensors_of(of(newer))
    assert not _hip.read_tensors_of(of(alone))
    assert not _hip.read_tensors_of(int)  # type: ignore[arg-type]
