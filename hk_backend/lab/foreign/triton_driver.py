"""A Triton driver whose GPU is the emulator: every `@triton.jit` kernel runs on CPU tensors.

    from hk_backend.lab.foreign import triton_driver

    gpu = triton_driver.install("gfx950")  # before vLLM or SGLang is imported
    kernel[(16,)](x, y, out, 4096, BLOCK=256)
    gpu.launches  # what ran: grids, counters

Kernels are compiled for the arch by Triton itself and executed with every check; a finding raises
`KernelFinding`. Inside `gpu.timing()` launches are timed by the clock instead, and autotuning
always is. Needs the extra `triton` (Triton 3.6 to 3.9; its ordinary wheel has the AMD backend).
Kernels with tensor descriptors are refused by name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

import torch

from hk_backend import _emulator
from hk_backend.lab.foreign.arguments import declared
from hk_backend.lab.foreign.launch import EmulatedGpu, Ran, Sampled

LANES = 64
ARCHES = {"gfx942": 64 * 1024, "gfx950": 160 * 1024}
"""Bytes of LDS of a workgroup, by arch."""
UNITS = {"gfx942": 304, "gfx950": 256}
"""Number of CUs."""


class KernelFinding(RuntimeError):
    """A kernel did what no kernel may do: it raced, left its buffers, or used what had not arrived.

    Attributes: launch (`Ran`).
    """

    def __init__(self, launch: Ran) -> None:
        super().__init__("\n".join(finding.message for finding in launch.findings))
        self.launch = launch


class TritonGpu:
    """The GPU that Triton's kernels run on.

    Attributes:
        launches: executed launches in their order.
        strict: whether a launch with findings raises `KernelFinding`, after it is recorded.
    """

    def __init__(self, arch: str) -> None:
        if arch not in ARCHES:
            raise ValueError(f"arch {arch!r}; valid: {', '.join(ARCHES)}")
        self.gpu = EmulatedGpu(arch)
        self.strict = True
        self.launches: list[Ran] = []
        self._samples: Callable[[Sequence[int]], Sampled] | None = None
        self._timing = False

    @property
    def arch(self) -> str:
        return self.gpu.arch

    @contextmanager
    def timing(
        self, samples: Callable[[Sequence[int]], Sampled] | None = None
    ) -> Iterator[list[Ran]]:
        """Time launches by the clock, instead of executing them; yields the list of them.

        Args:
            samples: the work of a launch by its grid; by default the grid is sampled evenly.
        """
        before = self._timing, self._samples, self.launches
        self._timing, self._samples, self.launches = True, samples, []
        try:
            yield self.launches
        finally:
            self._timing, self._samples, self.launches = before

    def benchmark(
        self, call: Callable[[], Any], *_: Any, quantiles: Sequence[float] | None = None, **__: Any
    ) -> float | list[float]:
        """Modelled milliseconds of `call`: Triton's `do_bench` by the clock, for its autotuner."""
        took = self.microseconds(call) / 1e3
        return [took] * len(quantiles) if quantiles else took

    def microseconds(self, call: Callable[[], Any]) -> float:
        """Modelled time of the kernels that `call` launches, one after the other."""
        with self.timing() as launches:
            call()
        return float(sum(each.modelled.microseconds for each in launches if each.modelled))

    def run(
        self,
        kernel: _emulator.Kernel,
        grid: Sequence[int],
        block: int,
        arguments: Sequence[Any],
        dynamic_lds: int,
    ) -> None:
        """Execute or time a launch, and record it. Raises `KernelFinding` if `strict`."""
        if self._timing:
            sampled = self._samples(grid) if self._samples else None
            done = self.gpu.time(kernel, grid, block, arguments, dynamic_lds, sampled)
        else:
            done = self.gpu.launch(kernel, grid, block, arguments, dynamic_lds)
        self.launches.append(done)
        if done.findings and self.strict:
            raise KernelFinding(done)


def install(arch: str = "gfx950") -> TritonGpu:
    """Make the emulated GPU Triton's only one, in this process.

    Call it before an engine is imported. vLLM's CPU build looks for a Triton backend named `cpu`
    while it is imported; that name is gone afterwards, since Triton compiles for every backend that
    accepts the target.

    Raises `ModuleNotFoundError` without Triton.
    """
    import triton
    import triton.testing
    from triton.backends import backends

    gpu = TritonGpu(arch)
    gpu.gpu.asked.install()

    class Driver(_Driver):
        """The driver of `gpu`; Inductor makes one without arguments if another one is active."""

        def __init__(self) -> None:
            super().__init__(gpu)

    backends["amd"] = replace(backends["amd"], driver=Driver)
    for name, backend in backends.items():
        if name != "amd":
            backend.driver.is_active = classmethod(lambda cls: False)
    triton.runtime.driver.set_active(Driver())
    triton.testing.do_bench = gpu.benchmark
    backends["cpu"] = backends["amd"]
    try:
        import_module("vllm.triton_utils")
    except ModuleNotFoundError:  # without vLLM
        pass
    finally:
        del backends["cpu"]
    return gpu


class _Driver:
    """The functions that Triton asks of a driver.

    They are those of triton/backends/driver.py, `DriverBase` and `GPUDriver`.
    """

    binary_ext = "hsaco"

    def __init__(self, gpu: TritonGpu) -> None:
        self.gpu = gpu
        self.utils = _Utils(gpu)
        self.get_benchmarker = lambda: gpu.benchmark

    def launcher_cls(self, source: Any, metadata: Any) -> _Launcher:
        return _Launcher(self.gpu, source, metadata)

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("hip", self.gpu.arch, LANES)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        return torch.cpu

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0)

    def clear_cache(self, cache: torch.Tensor) -> None:
        pass


class _Utils:
    """A driver's functions for devices and binaries."""

    def __init__(self, gpu: TritonGpu) -> None:
        self.gpu = gpu

    def get_device_properties(self, device: int) -> dict[str, Any]:
        return {
            "arch": self.gpu.arch,
            "warpSize": LANES,
            "max_shared_mem": ARCHES[self.gpu.arch],
            "multiprocessor_count": UNITS[self.gpu.arch],
            "max_threads_per_block": 1024,
            "max_num_regs": 512,
            "sm_clock_rate": 2_400_000,
            "mem_clock_rate": 2_000_000,
            "mem_bus_width": 8192,
            "cooperativeLaunch": False,
        }

    def load_binary(self, name: str, binary: bytes, shared: int, device: int, *_: Any) -> Any:
        """(module, function, registers, spills, largest block) of a compiled kernel."""
        module = _emulator.CodeObject.load(binary, binary)
        kernel = module.kernel(name)
        return module, kernel, kernel.vgprs, kernel.vgpr_spills, kernel.max_block

    def unload_module(self, module: Any) -> None:
        pass


class _Launcher:
    """Launches one compiled kernel; its arguments are those of the Python function."""

    def __init__(self, gpu: TritonGpu, source: Any, metadata: Any) -> None:
        self.gpu, self.metadata = gpu, metadata
        self.types = tuple(source.signature.values())
        if getattr(metadata, "launch_cooperative_grid", False):
            raise NotImplementedError(f"{metadata.name}: a cooperative grid is not emulated")

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        stream: int,
        kernel: _emulator.Kernel,
        packed: Any,
        launched: Any,
        enter: Callable[[Any], None] | None,
        leave: Callable[[Any], None] | None,
        *given: Any,
    ) -> None:
        if x * y * z == 0:
            return
        arguments = list(_flat(self.types, given, kernel.name))
        # Triton's own buffers come last, here without a byte
        scratch = [None] * (len(declared(kernel)) - len(arguments))
        if enter is not None:
            enter(launched)
        self.gpu.run(
            kernel,
            (x, y, z),
            self.metadata.num_warps * LANES,
            [*arguments, *scratch],
            self.metadata.shared,
        )
        if leave is not None:
            leave(launched)


def _flat(types: Sequence[Any], values: Sequence[Any], kernel: str) -> Iterator[Any]:
    """The arguments that the machine code takes: tuples are unpacked, constants left out."""
    for kind, value in zip(types, values, strict=True):
        if isinstance(kind, tuple):
            yield from _flat(kind, value, kernel)
        elif kind.startswith("tensordesc"):
            raise NotImplementedError(f"{kernel}: tensor descriptors are not emulated")
        elif kind != "constexpr":
            yield _argument(kind, value)


def _argument(kind: str, value: Any) -> Any:
    """The value of one argument in the machine code's form, by Triton's name of its type."""
    if kind.startswith("*"):
        return getattr(value, "base", value)  # a reinterpreted tensor wraps another one
    if kind in ("fp16", "f16"):
        return struct.pack("<e", value)
    if kind == "bf16":
        return torch.tensor([value], dtype=torch.bfloat16).view(torch.uint8).numpy().tobytes()
    if kind in ("fp32", "f32", "fp64"):
        return float(value)
    return int(value)
