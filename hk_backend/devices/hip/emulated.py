"""The emulated device: the code objects of an AMD GPU, executed on the CPU (`csrc/emulator`).

The emulated device is the hip device with another HIP library and another memory, so CI runs the
launch path that ships. Each tensor is mapped under its own name, with its exact bounds. Every
finding of the emulator is an error.
"""

from __future__ import annotations

import ctypes
import json
import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import torch

import hk_backend
from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip.call import Work
from hk_backend.devices.hip.device import HipDevice
from hk_backend.devices.hip.library import HipError, HipLibrary
from hk_backend.devices.hip.memory import HostMemory, spanned_bytes
from hk_backend.devices.hip.operator import HipOperator
from hk_backend.kernels import Catalogue, CodeObjectError, KernelEntry, catalogue
from hk_backend.terms.verdict import SERVED, Verdict

logger = logging.getLogger(__name__)

LIBRARY = Path(hk_backend.__file__).parent / "libhk_emulated_hip.so"
LAUNCH_FAILURE = 719
SECONDS_BETWEEN_PROGRESS = 10.0
SHOWN_FINDINGS = 5
MOST_INSTRUCTIONS = 1 << 32
"""Most instructions of a wave; more count as an endless loop."""
MOST_FINDINGS = 20
"""Most findings that are kept."""
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "hkEmulatedReset": (c_int, c_char_p, c_int),
    "hkEmulatedOptions": (c_int, c_uint64, c_int, c_int, c_uint64, c_int),
    "hkEmulatedMap": (c_int, POINTER(c_void_p), c_void_p, c_size_t, c_char_p),
    "hkEmulatedUnmap": (c_int, c_void_p),
    "hkEmulatedLines": (c_int, c_char_p, c_size_t),
    "hkEmulatedLaunchCalls": (c_uint64,),
    "hkEmulatedWhy": (c_char_p,),
    "hkEmulatedReport": (c_char_p,),
    "hkEmulatedForgetReport": (None,),
    "hipGetErrorName": (c_char_p, c_int),
    "hipGetErrorString": (c_char_p, c_int),
}
"""Types of a function's result and arguments; of other functions all are int."""


class EmulatorError(RuntimeError):
    """The emulator found faults in a launch; the message lists its findings."""

    def __init__(self, findings: list[dict[str, Any]]) -> None:
        lines = [finding["message"] for finding in findings[:SHOWN_FINDINGS]]
        if len(findings) > SHOWN_FINDINGS:
            lines.append(f"... and {len(findings) - SHOWN_FINDINGS} more")
        super().__init__("the emulator found: " + "; ".join(lines))
        self.findings = findings


class EmulatedLibrary(HipLibrary):
    """The emulator's HIP library, with functions that a real one lacks.

    `dll` gives access to all of its functions, for the emulator's controls and for tests.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), load=True)
        self.dll = ctypes.CDLL(str(path))  # the library that is now mapped
        for name, (result, *arguments) in SIGNATURES.items():
            function = getattr(self.dll, name)
            function.restype, function.argtypes = result, arguments

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of the library by its name.

        Raises:
            HipError: the function failed.
        """
        code = getattr(self.dll, name)(*arguments)
        if code:
            self.dll.hipGetLastError()
            text = filter(None, (self.dll.hipGetErrorString(code), self.dll.hkEmulatedWhy()))
            named = self.dll.hipGetErrorName(code).decode()
            raise HipError(name, code, named, b": ".join(text).decode())

    def reset(self, arch: str, devices: int = 1) -> None:
        """Restarts the emulator. Handles and mappings become invalid; `emulated_device` makes new
        devices."""
        self.call("hkEmulatedReset", arch.encode(), devices)
        emulated_device.cache_clear()

    def use_threads(self, threads: int) -> None:
        """Runs this many workgroups at a time from now on; other options keep their defaults."""
        self.call("hkEmulatedOptions", 0, threads, True, MOST_INSTRUCTIONS, MOST_FINDINGS)

    def load(self, entry: KernelEntry) -> int:
        """Loads a module and the code object's line tables, by which findings name source lines."""
        if lines := entry.line_tables():
            self.call("hkEmulatedLines", lines, len(lines))
        return super().load(entry)

    def map(self, tensor: torch.Tensor, name: str) -> int:
        """Maps `tensor` and returns its device address. Only bytes that its elements span are
        valid."""
        address = c_void_p()
        span = spanned_bytes(tensor)
        self.call("hkEmulatedMap", ctypes.byref(address), tensor.data_ptr(), span, name.encode())
        return address.value or 0

    def unmap(self, address: int) -> None:
        self.call("hkEmulatedUnmap", address)

    def report(self) -> dict[str, Any]:
        """Findings and counters since `forget_report` (csrc/emulator/hip/hip_report.hpp)."""
        report: dict[str, Any] = json.loads(self.dll.hkEmulatedReport().decode())
        return report

    def forget_report(self) -> None:
        self.dll.hkEmulatedForgetReport()

    def launch_calls(self) -> int:
        """Number of calls of hipModuleLaunchKernel since the last reset."""
        return int(self.dll.hkEmulatedLaunchCalls())

    def run_launches(self, run: bool) -> None:
        """Makes launches run from now on, or return at once without effect."""
        self.call("hkEmulatedLaunchesRun", int(run))


class EmulatedMemory(HostMemory):
    """Host memory that is mapped around each launch. Each launch is waited for, as the host reads
    its tensors right after it returns."""

    is_direct = False

    def __init__(self, library: EmulatedLibrary, name: str) -> None:
        self._library = library
        self._progress = Progress(name)

    @contextmanager
    def addresses(
        self, tensors: Mapping[str, torch.Tensor], work: Work
    ) -> Iterator[dict[str, int]]:
        """Maps the tensors of a launch. Raises `EmulatorError` if the emulator found a fault."""
        addresses: dict[str, int] = {}
        with self._progress.of(work):
            try:
                for name, tensor in tensors.items():
                    if tensor.numel():
                        addresses[name] = self._library.map(tensor, name)
                yield addresses
                self._finish()
            finally:
                for address in addresses.values():
                    self._library.unmap(address)

    def _finish(self) -> None:
        """Waits for the launch, and raises the emulator's findings."""
        try:
            self._library.synchronise(0)
        except HipError as error:
            findings = self._library.report()["findings"]
            self._library.forget_report()
            if error.code != LAUNCH_FAILURE or not findings:
                raise
            raise EmulatorError(findings) from None


class Progress:
    """Logs that emulation is slow and how far it is, between launches and during a long one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._done: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._said = 0.0

    @contextmanager
    def of(self, work: Work) -> Iterator[None]:
        """Measures and reports the launch inside the context, which does `work`."""
        began = time.monotonic()
        if not self._said:
            self._said = began
            logger.warning("hk_backend: %s executes machine code on the CPU: slow", self._name)
        ended = threading.Event()
        watch = threading.Thread(target=self._watch, args=(ended, work, began), daemon=True)
        watch.start()
        try:
            yield
        finally:
            ended.set()
            watch.join()
        now = time.monotonic()
        self._done[work.unit] += work.amount
        self._seconds[work.unit] += now - began
        if now - self._said >= SECONDS_BETWEEN_PROGRESS:
            done, seconds = self._done[work.unit], self._seconds[work.unit]
            self._say(now, f"{done} {work.unit} so far, {done / seconds:.0f} a second")

    def _watch(self, ended: threading.Event, work: Work, began: float) -> None:
        while not ended.wait(SECONDS_BETWEEN_PROGRESS):
            now = time.monotonic()
            self._say(
                now, f"a launch of {work.amount} {work.unit} has taken {now - began:.0f} s so far"
            )

    def _say(self, now: float, what: str) -> None:
        self._said = now
        logger.warning("hk_backend: %s: %s", self._name, what)


def loads(device: HipDevice, operator: HipOperator, kernel: KernelEntry, index: int) -> Verdict:
    """Checks only that a kernel loads: tests have run it, and every machine emulates it alike."""
    device.kernels.load(kernel, index)
    return SERVED


def make_device(library: EmulatedLibrary, kernels: Catalogue) -> HipDevice:
    """Makes the hip device over a library that was reset to the arch of `kernels`."""
    library.use_threads(torch.get_num_threads())
    memory = EmulatedMemory(library, f"emulated:{kernels.arch}")
    return HipDevice(library, kernels, memory, kind="emulated", check=loads)


@cache
def emulated_device(arch: str) -> HipDevice:
    """The emulated GPU of `arch`. It is the same object until the library is reset, also to another
    arch.

    Raises:
        DeviceError: there are no kernels for the arch, or the emulator's library does not load.
    """
    try:
        kernels = catalogue(arch)
    except CodeObjectError as error:
        raise DeviceError(f"HK_DEVICE=emulated:{arch}: {error}") from error
    try:
        library = EmulatedLibrary(LIBRARY)
    except DeviceError as error:
        raise DeviceError(
            f"the emulator cannot be loaded ({error}): reinstall hk-backend"
        ) from error
    library.reset(arch)
    return make_device(library, kernels)
