"""Sets and records the conditions of a benchmark: instruction set, threads, machine."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import typer

from hk_backend import _cpu, machine
from hk_backend.config import get_config
from hk_backend.devices import DeviceError, device_for
from hk_backend.devices.cpu.isas import why_not
from hk_backend.lab.bench.isa import ISA_LIMITS
from hk_backend.lab.options import Isa

MATMUL_SIZE = 2304
"""Side of the square matmul that is timed; a power of two is slow in some matmul libraries."""
MATMUL_FLOPS = 2 * MATMUL_SIZE**3


def limit_isa(isa: Isa | None) -> None:
    """Restart this program with HK and torch limited to `isa`, which they read when they load.

    Raises:
        typer.BadParameter: this processor does not have the instruction set.
    """
    if isa and isa.value not in _cpu.available_isas():
        found, why = ", ".join(_cpu.available_isas()), why_not(isa.value)
        raise typer.BadParameter(
            f"--isa {isa.value}: this processor has {found}{f' ({why})' if why else ''}"
        )
    settings = ISA_LIMITS[isa.value] if isa else machine.workarounds()
    if any(os.environ.get(name) != value for name, value in settings.items()):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **settings})


def use_threads(threads: int) -> None:
    """Let HK and torch compute with `threads` threads; 0: as many as torch chose."""
    if threads:
        torch.set_num_threads(threads)


def check_device() -> None:
    """Check that HK computes with the host kernels, which the benchmark measures.

    Raises:
        ConfigError, DeviceError: HK_DEVICE names another device, or none.
    """
    device = get_config().device
    if device != "auto" and not device.startswith("cpu"):
        raise DeviceError(
            f"HK_DEVICE={device}: this benchmark measures the host kernels: unset HK_DEVICE"
        )
    device_for("cpu")


def environment(rounds: int) -> dict[str, Any]:
    """The conditions that are recorded with a benchmark's numbers."""
    return {
        "cpu": machine.cpu_model(),
        "cores": machine.usable_cores(),
        "threads": torch.get_num_threads(),
        "device": device_for("cpu").name,
        "torch": torch.__version__,
        "torch_isa": torch.backends.cpu.get_cpu_capability(),
        "matmul_size": MATMUL_SIZE,
        "rounds": rounds,
        "warning": machine.busy(),
    }
