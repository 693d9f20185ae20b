"""libamdhip64 through ctypes: the one that this process has already mapped.

A second HIP runtime in a process knows nothing of the first one's streams and memory (its error
for them is 709). So nothing is ever opened by name: the library that torch was linked to is found
among the mapped ones and opened by that very path, without loading.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hk_backend.devices.base import DeviceError
from hk_backend.kernels import KernelEntry

NAME = re.compile(r"libamdhip64(-[0-9a-f]+)?\.so(\.\d+)*")
"""File names of the runtime, also as wheels bundle it (`libamdhip64-1a2b3c4d.so`)."""

SUCCESS = 0
THREADS = 2**32 - 1
"""Of one launch and dimension."""
INVALID_DEVICE_FUNCTION = 98
MAX_DYNAMIC_LDS = 8
"""hipFuncAttributeMaxDynamicSharedMemorySize."""
ARCH_NAME = slice(1160, 1160 + 256)
PROPERTIES_SIZE = 1472
"""Of hipDeviceProp_tR0600 (HIP 6 and 7), in which gcnArchName lies at byte 1160."""

_PARAM_BUFFER_POINTER, _PARAM_BUFFER_SIZE, _PARAM_END = 1, 2, 3
"""Of the `extra` argument of hipModuleLaunchKernel."""

_int_p = ctypes.POINTER(ctypes.c_int)
_void_pp = ctypes.POINTER(ctypes.c_void_p)
_PROTOTYPES: dict[str, list[Any]] = {
    "hipGetDeviceCount": [_int_p],
    "hipGetDevice": [_int_p],
    "hipSetDevice": [ctypes.c_int],
    "hipGetDevicePropertiesR0600": [ctypes.c_void_p, ctypes.c_int],
    "hipStreamGetDevice": [ctypes.c_void_p, _int_p],
    "hipStreamSynchronize": [ctypes.c_void_p],
    "hipModuleLoadData": [_void_pp, ctypes.c_void_p],
    "hipModuleUnload": [ctypes.c_void_p],
    "hipModuleGetFunction": [_void_pp, ctypes.c_void_p, ctypes.c_char_p],
    "hipFuncSetAttribute": [ctypes.c_void_p, ctypes.c_int, ctypes.c_int],
    "hipModuleLaunchKernel": [
        ctypes.c_void_p,
        *[ctypes.c_uint] * 7,
        ctypes.c_void_p,
        ctypes.c_void_p,
        _void_pp,
    ],
    "hipGetLastError": [],
}


class HipError(RuntimeError):
    """A HIP call failed; the message has the call, HIP's name of the error and its text."""

    def __init__(self, call: str, code: int, name: str, text: str) -> None:
        super().__init__(f"{call}: {name} ({code}): {text}")
        self.code = code


class HipLibrary:
    """The HIP functions that a launch needs. Every method but `synchronise` only enqueues.

    Raises:
        DeviceError: the library lacks one of them.
    """

    def __init__(self, path: str, mode: int) -> None:
        self.path = path
        self.dll = ctypes.CDLL(path, mode=mode)
        self._images: list[bytes] = []  # HIP does not say that it copies them
        for name, arguments in _PROTOTYPES.items():
            self._function(name).argtypes = arguments
        for name in ("hipGetErrorName", "hipGetErrorString"):
            self._function(name).argtypes = [ctypes.c_int]
            self._function(name).restype = ctypes.c_char_p

    def call(self, name: str, *arguments: object) -> None:
        """Call `name`.

        Raises:
            HipError: it failed. The runtime's own note of it is cleared, or torch's next check
                would report our error as its own.
        """
        code = getattr(self.dll, name)(*arguments)
        if code != SUCCESS:
            self.dll.hipGetLastError()
            raise HipError(name, code, self.dll.hipGetErrorName(code).decode(), self._text(code))

    def _function(self, name: str) -> Any:
        try:
            return getattr(self.dll, name)
        except AttributeError:
            raise DeviceError(f"{self.path} has no {name}: ROCm 6 or newer is needed") from None

    def _text(self, code: int) -> str:
        text: bytes = self.dll.hipGetErrorString(code)
        return text.decode()

    def device_count(self) -> int:
        return self._int("hipGetDeviceCount")

    def arch(self, index: int) -> str:
        """The arch of device `index` without its features: `gfx950`."""
        properties = ctypes.create_string_buffer(PROPERTIES_SIZE)
        self.call("hipGetDevicePropertiesR0600", properties, index)
        name = properties.raw[ARCH_NAME].partition(b"\0")[0].decode()
        return name.partition(":")[0]

    @contextmanager
    def current(self, index: int) -> Iterator[None]:
        """Device `index` as this thread's current one, and back."""
        before = self._int("hipGetDevice")
        if before == index:
            yield
            return
        self.call("hipSetDevice", index)
        try:
            yield
        finally:
            self.call("hipSetDevice", before)

    def stream_device(self, stream: int) -> int:
        """The device of a stream (0: the null stream of the current device)."""
        found = ctypes.c_int()
        self.call("hipStreamGetDevice", stream, ctypes.byref(found))
        return found.value

    def load(self, entry: KernelEntry) -> int:
        """The module of a kernel's code object, on the current device.

        Raises:
            CodeObjectError: it is not the catalogue's.
        """
        return self.load_image(entry.code_object())

    def load_image(self, image: bytes) -> int:
        """The module of a code object in memory, which HIP trusts to be whole."""
        module = ctypes.c_void_p()
        self.call("hipModuleLoadData", ctypes.byref(module), image)
        self._images.append(image)
        return module.value or 0

    def function(self, module: int, symbol: str) -> int:
        found = ctypes.c_void_p()
        self.call("hipModuleGetFunction", ctypes.byref(found), module, symbol.encode())
        return found.value or 0

    def allow_dynamic_lds(self, function: int, size: int) -> None:
        """Let launches of `function` ask for `size` bytes of dynamic LDS."""
        try:
            self.call("hipFuncSetAttribute", function, MAX_DYNAMIC_LDS, size)
        except HipError as error:
            # ROCm before 7 knows the attribute for functions of the host program only, and then
            # bounds a module's launch by the hardware's LDS alone
            if error.code != INVALID_DEVICE_FUNCTION:
                raise

    def launch(
        self,
        function: int,
        grid: tuple[int, int, int],
        block: int,
        dynamic_lds: int,
        stream: int,
        argument: bytes,
    ) -> None:
        """Enqueue one kernel; `argument` is copied before this returns.

        Raises:
            ValueError: more threads than HIP counts (in 32 bits; it may wrap without an error).
        """
        most = THREADS // block
        if grid[0] > most:
            raise ValueError(
                f"grid: {grid[0]} workgroups of {block} threads in one launch are not valid: "
                f"expected at most {most}"
            )
        size = ctypes.c_size_t(len(argument))
        buffer = ctypes.create_string_buffer(argument, len(argument))
        extra = (ctypes.c_void_p * 5)(
            _PARAM_BUFFER_POINTER,
            ctypes.addressof(buffer),
            _PARAM_BUFFER_SIZE,
            ctypes.addressof(size),
            _PARAM_END,
        )
        self.call(
            "hipModuleLaunchKernel",
            function,
            *grid,
            block,
            1,
            1,
            dynamic_lds,
            stream,
            None,
            ctypes.cast(extra, _void_pp),
        )

    def synchronise(self, stream: int) -> None:
        """Wait for a stream. Never on the way of a request."""
        self.call("hipStreamSynchronize", stream)

    def _int(self, name: str) -> int:
        found = ctypes.c_int()
        self.call(name, ctypes.byref(found))
        return found.value


def mapped_library() -> HipLibrary:
    """The HIP runtime of this process.

    Raises:
        DeviceError: there is none, or several and none of them is torch's, or it is too old.
    """
    found = [path for path in mapped_paths() if NAME.fullmatch(Path(path).name)]
    if not found:
        raise DeviceError(
            "no HIP runtime (libamdhip64) is mapped in this process: torch is not a ROCm build"
        )
    if len(found) > 1:
        ours = [path for path in found if torch_folder() in Path(path).resolve().parents]
        if len(ours) != 1:
            raise DeviceError(
                f"several HIP runtimes are mapped in this process: {', '.join(found)}; streams and "
                "memory of one mean nothing to another. Keep only the one that torch uses"
            )
        found = ours
    try:
        return HipLibrary(found[0], os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError as error:
        raise DeviceError(
            f"the mapped HIP runtime cannot be used ({error}): was its file replaced?"
        ) from error


def torch_folder() -> Path:
    module = sys.modules.get("torch")
    return Path(module.__file__ or "/").resolve().parent if module else Path("/nowhere")


class _LoadedObject(ctypes.Structure):
    """The start of `struct dl_phdr_info` (man dl_iterate_phdr)."""

    _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))


def mapped_paths() -> list[str]:
    """The paths of all shared libraries that this process has loaded, each once."""
    found: dict[str, None] = {}

    def note(loaded: Any, size: int, data: Any) -> int:
        name = loaded.contents.name
        if name:
            found[os.fsdecode(name)] = None
        return 0

    visitor = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.POINTER(_LoadedObject), ctypes.c_size_t, ctypes.c_void_p
    )
    ctypes.CDLL(None).dl_iterate_phdr(visitor(note), None)
    return list(found)
