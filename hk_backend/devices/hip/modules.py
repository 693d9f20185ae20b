"""Kernels of the catalogue on HIP devices: one module per device and code object."""

from __future__ import annotations

import threading
from dataclasses import astuple
from pathlib import Path

from hk_backend import _hip
from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip.library import HipLibrary
from hk_backend.kernels import KernelEntry, pack_arguments

LDS_WITHOUT_ATTRIBUTE = 64 * 1024
"""Most bytes of dynamic LDS for a launch without hipFuncSetAttribute."""


class HipKernels:
    """Launches kernels of one arch on any device of that arch."""

    def __init__(self, library: HipLibrary) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._modules: dict[tuple[int, Path], int] = {}
        self._kernels: dict[tuple[int, str, str], _hip.Kernel] = {}

    def launch(
        self, entry: KernelEntry, index: int, stream: int, **arguments: float | None
    ) -> None:
        """Enqueues a kernel on `stream` of device `index`, without waiting.

        Args:
            arguments: values of the argument struct's fields.

        Raises:
            CodeObjectError: the code object is not the one in the catalogue.
            DeviceError: the stream belongs to another device.
            HipError: HIP refused the launch, for example on a stream of another runtime.
        """
        self.load(entry, index).launch(stream, pack_arguments(entry, **arguments))

    def load(self, entry: KernelEntry, index: int) -> _hip.Kernel:
        """Loads `entry` on device `index`, ready for launches. Each code object is loaded once."""
        key = index, entry.operator, entry.name
        known = self._kernels.get(key)
        if known is not None:
            return known
        with self._lock, self._library.current(index):
            module = self._modules.get((index, entry.path))
            if module is None:
                arch = self._library.arch(index)
                if arch != entry.arch:
                    raise DeviceError(
                        f"device {index} is a {arch}; {entry.name} is for {entry.arch}"
                    )
                module = self._library.load(entry)
                self._modules[index, entry.path] = module
            function = self._library.function(module, entry.symbol)
            if entry.dynamic_lds > LDS_WITHOUT_ATTRIBUTE:
                self._library.allow_dynamic_lds(function, entry.dynamic_lds)
            kernel = self._kernels[key] = _hip.Kernel(
                self._library,
                index,
                function,
                entry.block,
                entry.dynamic_lds,
                _hip.GridFunction(entry.grid, astuple(entry.tile)),
            )
        return kernel
