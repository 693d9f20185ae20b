"""FlyDSL on an emulated GPU: its compiled launchers call this module instead of HIP's runtime.

FlyDSL 0.5 compiles a launcher for the host beside the kernel, and calls it with pointers. The
launcher loads the code object and launches it through functions named `mgpu...`, which FlyDSL
takes from `libfly_jit_runtime.so`; that library needs ROCm. Here they are Python functions.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from hk_backend import _emulator
from hk_backend.lab.foreign.arguments import declared
from hk_backend.lab.foreign.triton_driver import TritonGpu

STREAM = 1
"""A handle of a stream; nothing here runs later than it is launched."""
HANDLE, SIZE = ctypes.c_void_p, ctypes.c_ssize_t
HANDLES = ctypes.POINTER(HANDLE)


class NoLinker(RuntimeError):
    """FlyDSL finds no linker, so that it cannot finish a code object."""


class Stream:
    """The stream that FlyDSL's functions are given, in place of torch's."""

    cuda_stream = STREAM


class FlyGpu:
    """The GPU on which FlyDSL's kernels run in this process.

    Attributes:
        gpu: executes or times the launches, and records them.
    """

    def __init__(self, gpu: TritonGpu) -> None:
        self.gpu = gpu
        self._failed: BaseException | None = None
        self._objects: list[Any] = [None]
        self._functions = {
            "mgpuModuleLoad": self._function(HANDLE, self._load, HANDLE, ctypes.c_size_t),
            "mgpuModuleUnload": self._function(None, _nothing, HANDLE),
            "mgpuModuleGetFunction": self._function(HANDLE, self._find, HANDLE, ctypes.c_char_p),
            "mgpuStreamCreate": self._function(HANDLE, lambda: STREAM),
            "mgpuStreamDestroy": self._function(None, _nothing, HANDLE),
            "mgpuStreamSynchronize": self._function(None, _nothing, HANDLE),
            "mgpuLaunchKernel": self._function(
                None,
                self._launch,
                HANDLE,
                *[SIZE] * 6,
                ctypes.c_int32,
                HANDLE,
                HANDLES,
                HANDLES,
                ctypes.c_size_t,
            ),
        }

    def call(self, launcher: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function that launches FlyDSL's kernels.

        Some only compile when they are called for the first time; those are called again.
        Raises what a launch has raised.
        """
        before = len(self.gpu.launches)
        done = launcher(*arguments, **named)
        if len(self.gpu.launches) == before and not self._failed:
            done = launcher(*arguments, **named)
        failed, self._failed = self._failed, None
        if failed:
            raise failed
        return done

    def register(self, engine: Any) -> None:
        """Give an engine of compiled launchers the functions that they call."""
        for name, function in self._functions.items():
            engine.raw_register_runtime(name, ctypes.cast(function, HANDLE))

    def _function(self, result: Any, call: Callable[..., Any], *types: Any) -> Any:
        """A function for machine code. It keeps an exception, which cannot pass through."""

        def guarded(*arguments: Any) -> Any:
            try:
                return call(*arguments)
            except BaseException as error:  # `call` raises it
                self._failed = self._failed or error
                return 0 if result else None

        return ctypes.CFUNCTYPE(result, *types)(guarded)

    def _kept(self, kept: Any) -> int:
        self._objects.append(kept)
        return len(self._objects) - 1

    def _load(self, data: int, size: int) -> int:
        elf = ctypes.string_at(data, size or _size_of_elf(data))
        return self._kept(_emulator.CodeObject.load(elf, elf))

    def _find(self, module: int, name: bytes) -> int:
        return self._kept(self._objects[module].kernel(name.decode()))

    def _launch(
        self,
        function: int,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        block_x: int,
        block_y: int,
        block_z: int,
        dynamic_lds: int,
        stream: int,
        values: Any,
        extra: Any,
        count: int,
    ) -> None:
        kernel = self._objects[function]
        arguments = [
            self._argument(place, values[number]) for number, place in enumerate(declared(kernel))
        ]
        block = block_x * block_y * block_z
        self.gpu.run(kernel, (grid_x, grid_y, grid_z), block, arguments, dynamic_lds)

    def _argument(self, place: _emulator.KernelArgument, at: int) -> Any:
        raw = ctypes.string_at(at, place.size)
        if place.kind != "global_buffer":
            return raw
        (address,) = struct.unpack("<Q", raw)
        if not address:
            return None
        found = self.gpu.gpu.asked.find(address)
        if found is None:
            raise ValueError(f"an argument is the address {address:#x}, which no tensor has")
        begin, size = found
        memory = (ctypes.c_char * size).from_address(begin)
        return torch.frombuffer(memory, dtype=torch.uint8)[address - begin :]


def install(arch: str = "gfx950") -> FlyGpu:
    """Make an emulated GPU that of FlyDSL in this process.

    Call it before FlyDSL compiles anything. `ROCM_PATH` names a folder that has the linker at
    `llvm/bin/ld.lld`, as ROCm's does.

    Raises:
        ModuleNotFoundError: FlyDSL is not installed.
        NoLinker: there is no linker in that folder.
    """
    executor: Any = import_module("flydsl.compiler.jit_executor")
    root = os.environ.get("ROCM_PATH", "/opt/rocm")
    if not os.access(f"{root}/llvm/bin/ld.lld", os.X_OK):
        raise NoLinker(
            f"FlyDSL wants {root}/llvm/bin/ld.lld; valid: ROCM_PATH=FOLDER with it, "
            "be it a link to lld of LLVM 22"
        )
    os.environ.update(FLYDSL_GPU_ARCH=arch, ARCH=arch)
    fly = FlyGpu(TritonGpu(arch))
    fly.gpu.gpu.asked.install()
    _note_exchanged(fly.gpu)

    class Engine(executor.ExecutionEngine):  # type: ignore[misc]
        """Compiled launchers, which call `fly`."""

        def __init__(self, module: Any, opt_level: int, shared_libs: Any) -> None:
            super().__init__(module, opt_level=opt_level, shared_libs=[])
            fly.register(self)

    class Modules:
        """Loaded modules, in the form that FlyDSL unloads."""

        def __init__(self, engine: Any, modules: Any) -> None:
            self.engine, self.modules = engine, modules

        def unload(self) -> None:
            """Nothing is to be done: modules here live as long as the process."""

    executor.ExecutionEngine, executor.GpuJitModule = Engine, Modules
    executor._resolve_runtime_libs = list
    return fly


def _note_exchanged(gpu: TritonGpu) -> None:
    """Note the addresses of tensors that FlyDSL asks for by DLPack."""
    plain: Any = torch.Tensor.__dlpack__

    def exchanged(tensor: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        gpu.gpu.asked.note(tensor)
        return plain(tensor, *arguments, **named)

    torch.Tensor.__dlpack__ = exchanged  # type: ignore[assignment, method-assign]


def _nothing(handle: int) -> None:
    """Destroy, unload or wait for what needs none of it."""


def _size_of_elf(data: int) -> int:
    """Bytes of an ELF file whose section headers lie at its end."""
    head = ctypes.string_at(data, 64)
    (begin,), (each, count) = (
        struct.unpack_from("<Q", head, 40),
        struct.unpack_from("<2H", head, 58),
    )
    return int(begin + each * count)
