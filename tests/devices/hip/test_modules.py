"""The launch path on the emulated library, with small kernels."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.devices.hip.library import HipError
from hk_backend.devices.hip.modules import HipKernels
from hk_backend.kernels import ArgumentError, Catalogue, CodeObjectError, KernelEntry
from tests.devices.hip.hip_calls import SUCCESS, code, fill_values, malloc, read
from tests.devices.hip.small_kernels import BLOCK
from tests.kernels.catalogues import with_kernels

COUNT = 1000


def fill(
    kernels: HipKernels,
    small: Catalogue,
    out: int,
    value: int = 1,
    count: int = COUNT,
    index: int = 0,
    on: int = 0,
) -> None:
    entry = small.kernel("fill")
    kernels.launch(entry, index, on, **fill_values(out, value, count))


def changed(small: Catalogue, **changes: object) -> Catalogue:
    """The catalogue with another entry for `fill`."""
    entry: KernelEntry = replace(small.kernel("fill"), **changes)  # type: ignore[arg-type]
    return with_kernels(small, entry)


def test_one_module_per_device_and_code_object(
    library: EmulatedLibrary, small: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = []
    load = library.load_image
    monkeypatch.setattr(library, "load_image", lambda image: loads.append(image) or load(image))
    kernels = HipKernels(library)
    outs = []
    for index in (0, 1, 0, 1):
        with library.current(index):
            outs.append(malloc(library, 4 * COUNT))
        fill(kernels, small, outs[-1], index + 1, index=index)
    assert len(loads) == 2
    kernels.launch(small.kernel("wide"), 0, 0, **fill_values(outs[0], 0, BLOCK))
    assert len(loads) == 3
    another = replace(small.kernel("fill"), name="another")  # in the same code object
    assert kernels.load(another, 0) is not kernels.load(small.kernel("fill"), 0)
    assert len(loads) == 3
    for index in (0, 1):
        with library.current(index):
            library.synchronise(0)
    assert read(library, outs[1], 1) == [2]
    assert read(library, outs[2], 1) == [1]


def test_the_current_device_is_put_back(library: EmulatedLibrary, small: Catalogue) -> None:
    kernels = HipKernels(library)
    with library.current(1):
        out = malloc(library, 4 * COUNT)
    fill(kernels, small, out, index=1)
    assert library.stream_device(0) == 0
    with pytest.raises(ArgumentError):
        kernels.launch(small.kernel("fill"), 1, 0, results=out)
    assert library.stream_device(0) == 0


def test_a_device_of_another_arch(library: EmulatedLibrary, small: Catalogue) -> None:
    library.reset("gfx942")
    with pytest.raises(DeviceError, match="device 0 is a gfx942; fill is for gfx950"):
        fill(HipKernels(library), small, malloc(library, 4 * COUNT))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[: len(data) // 2], "bytes instead of"),
        (lambda data: data[:-8] + b"tampered", "sha256 is not the catalogue's"),
        (lambda data: data[:48] + b"\x4c" + data[49:], "is for gfx942, not for gfx950"),
        (lambda data: b"", "bytes instead of"),
    ],
    ids=["truncated", "changed", "other-arch", "empty"],
)
def test_a_code_object_that_is_not_the_catalogues(
    damage: object, message: str, library: EmulatedLibrary, small: Catalogue, tmp_path: Path
) -> None:
    path = tmp_path / "small.co"
    assert callable(damage)
    path.write_bytes(damage(small.kernel("fill").code_object()))
    kernels, other = HipKernels(library), changed(small, path=path)
    with pytest.raises(CodeObjectError, match=message):
        fill(kernels, other, malloc(library, 4 * COUNT))
    shutil.copy(small.kernel("fill").path, path)  # repaired: nothing of the failure remains
    fill(kernels, other, malloc(library, 4 * COUNT))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"symbol": "other"}, "hipModuleGetFunction: hipErrorNotFound"),
        ({"dynamic_lds": 161 << 10}, "hipFuncSetAttribute: hipErrorInvalidValue"),
    ],
)
def test_what_cannot_be_loaded(
    changes: dict[str, Any], message: str, library: EmulatedLibrary, small: Catalogue
) -> None:
    """A missing symbol is refused, and so is more LDS than there is."""
    kernels, other = HipKernels(library), changed(small, **changes)
    with pytest.raises(HipError, match=message):
        fill(kernels, other, malloc(library, 4 * COUNT))
    assert code(library, "hipGetLastError") == SUCCESS, "or torch would report it as its own"


def test_more_threads_than_hip_counts(library: EmulatedLibrary) -> None:
    """HIP wraps a grid at 32 bits, and would leave tiles unwritten without an error."""
    with pytest.raises(ValueError, match=r"grid: 8388608 workgroups of 512 .* at most 8388607"):
        library.launch(0, (2**23, 1, 1), 512, 0, 0, b"")
