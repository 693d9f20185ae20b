"""`hk-backend time --measure`: runs the rows (rows.py) on a GPU, through HK's serving path.

An emulated device takes the same path, but its clocks count instructions: its results say nothing
about a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from hk_backend.config import get_config
from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip.device import HipDevice
from hk_backend.devices.hip.emulated import LIBRARY, EmulatedLibrary, make_device
from hk_backend.devices.hip.library import HipError, mapped_library
from hk_backend.kernels import CodeObjectError, NoKernel, catalogue
from hk_backend.kernels.catalogue import MEASURING
from hk_backend.lab.bench.gpu.launches import Gpu, Runner
from hk_backend.lab.timing.measured import Measured
from hk_backend.lab.timing.microbenchmarks import Microbenchmark, microbenchmarks

ROUNDS = 5
EMULATED_COMPUTE_UNITS = 2


def gpu() -> Gpu:
    """The GPU that torch works on, or the emulated one of HK_DEVICE.

    Raises:
        DeviceError: there is no GPU, or there are no kernels for it.
    """
    configured = get_config().device
    kind, _, arch = configured.partition(":")
    if kind == "cpu":
        raise DeviceError(f"HK_DEVICE={configured}: only a GPU, or an emulated one, is measured")
    try:
        return emulated(arch) if kind == "emulated" else current()
    except (HipError, CodeObjectError) as error:
        raise DeviceError(str(error)) from error


def current() -> Gpu:
    """The GPU that torch works on. Raises `DeviceError`, `HipError`, `CodeObjectError`."""
    library = mapped_library()
    if not library.device_count():
        raise DeviceError(f"the HIP runtime {library.path} sees no GPU")
    index = torch.cuda.current_device()
    device = HipDevice(library, catalogue(library.arch(index), MEASURING))
    about = torch.cuda.get_device_properties(index)
    return Gpu(device, index, about.name, about.multi_processor_count, ROUNDS, emulated=False)


def emulated(arch: str) -> Gpu:
    """The emulated GPU of `arch`, after a reset of the emulator's HIP library.

    Raises `DeviceError`, `HipError`, `CodeObjectError`.
    """
    kernels = catalogue(arch, MEASURING)
    library = EmulatedLibrary(LIBRARY)
    library.reset(arch)
    device = make_device(library, kernels)
    return Gpu(device, 0, device.name, EMULATED_COMPUTE_UNITS, rounds=1, emulated=True)


def measure(
    on: Gpu,
    chosen: Iterable[Microbenchmark] | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> Measured:
    """Run the `chosen` rows, by default all; rows without a kernel for the arch are left out.

    Args:
        say: called with the name of each row before it runs.

    Raises:
        DeviceError, HipError, EmulatorError: a launch failed.
    """
    found = {}
    for row in microbenchmarks() if chosen is None else chosen:
        entry = on.device.catalogue.select("measure", run=row.kernel)
        if not isinstance(entry, NoKernel):
            say(row.name)
            found[row.name] = Runner(on, row, entry).run()
    return Measured(on.device.catalogue.arch, on.name, on.emulated, found)
