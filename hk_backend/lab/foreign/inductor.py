"""`torch.compile` for the emulated GPU: Inductor's Triton kernels, over CPU tensors.

    gpu = triton_driver.install("gfx950")
    inductor.install(gpu)  # before anything is compiled
    torch.compile(f)(x)  # x lies on the CPU; the kernels are gfx950's

Inductor fuses norms, activations and rotary embeddings of a model, as it does on an AMD GPU. The
clock answers its autotuner. Nothing that it makes is kept on disk, whose names lack the arch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from hk_backend.lab.foreign.triton_driver import LANES, UNITS, TritonGpu


def install(gpu: TritonGpu) -> None:
    """Let Inductor generate Triton for CPU tensors, and compile it for `gpu`, in this process."""
    from torch._dynamo import device_interface
    from torch._inductor import config
    from torch._inductor.runtime import benchmarking, hints

    config.cpu_backend = "triton"
    config.compile_threads = 1  # another process has another driver
    config.force_disable_caches = True
    config.use_static_triton_launcher = False  # it loads binaries without Triton's driver
    warnings.filterwarnings("ignore", message="Could not find an active CPU backend")

    properties = hints.DeviceProperties
    plain = properties.create

    def create(device: torch.device) -> Any:
        if device.type != "cpu":
            return plain(device)
        return properties(
            type="hip",
            index=0,
            multi_processor_count=UNITS[gpu.arch],
            cc=gpu.arch,  # type: ignore[arg-type]
            major=9,
            regs_per_multiprocessor=128 * 1024,
            max_threads_per_multi_processor=2048,
            max_threads_per_block=1024,
            warp_size=LANES,
        )

    def benchmark_gpu(_: Any, call: Callable[[], Any], *__: Any, **___: Any) -> Any:
        return gpu.benchmark(call)

    class Interface(device_interface.CpuInterface):
        """The device under the name that Inductor has for AMD's."""

        @staticmethod
        def is_available() -> bool:
            return False  # torch.cuda has nothing behind it

        @staticmethod
        def exchange_device(device: int) -> int:
            return 0

        maybe_exchange_device = exchange_device

    properties.create = create  # type: ignore[assignment, method-assign]
    device_interface.get_interface_for_device("cpu")  # registers torch's own first
    device_interface.register_interface_for_device("cuda", Interface)
    benchmarking.Benchmarker.benchmark_gpu = benchmark_gpu  # type: ignore[method-assign]
    benchmarking.InductorBenchmarker.benchmark_gpu = benchmark_gpu  # type: ignore[method-assign]
