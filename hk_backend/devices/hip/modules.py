"""Kernels of the catalogue on HIP devices: one module per device and code object."""

from __future__ import annotations

import threading
from pathlib import Path

from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip.library import HipLibrary
from hk_backend.kernels import Catalogue, KernelEntry, pack_arguments

LDS_WITHOUT_ATTRIBUTE = 64 * 1024
"""Bytes of dynamic LDS that a launch may ask for without hipFuncSetAttribute."""


class HipKernels:
    """Launches kernels of one arch on any device of that arch."""

    def __init__(self, library: HipLibrary, catalogue: Catalogue) -> None:
        self._library = library
        self._catalogue = catalogue
        self._lock = threading.Lock()
        self._modules: dict[tuple[int, Path], int] = {}
        self._functions: dict[tuple[int, str], int] = {}

    def launch(
        self, name: str, index: int, stream: int, sizes: dict[str, int], **arguments: float | None
    ) -> None:
        """Enqueue kernel `name` on `stream` of device `index`; nothing waits for anything.

        Args:
            sizes: what the grid's formula may name; `arguments`: the fields of its struct.

        Raises:
            CodeObjectError: the code object is not the catalogue's.
            DeviceError: the stream belongs to another device.
            HipError: HIP refused; also to a stream of another runtime.
        """
        entry = self._catalogue.kernel(name)
        with self._library.current(index):
            owner = self._library.stream_device(stream)
            if owner != index:
                raise DeviceError(f"stream {stream:#x} is of device {owner}, tensors of {index}")
            function = self.load(entry, index)
            self._library.launch(
                function,
                entry.grid(**sizes),
                entry.block,
                entry.dynamic_lds,
                stream,
                pack_arguments(entry, **arguments),
            )

    def load(self, entry: KernelEntry, index: int) -> int:
        """The function of `entry` on device `index`, which must be the current one."""
        known = self._functions.get((index, entry.name))
        if known is not None:
            return known
        with self._lock:
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
            self._functions[index, entry.name] = function
        return function
