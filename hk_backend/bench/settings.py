"""What a benchmark's numbers depend on: instruction set, threads, machine; set and recorded."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import typer

from hk_backend import _cpu, machine
from hk_backend.bench.isa import ISA_LIMITS
from hk_backend.bench.options import Isa
from hk_backend.config import get_config
from hk_backend.devices import DeviceError, device_for
from hk_backend.devices.cpu.isas import why_not

MATMUL_SIZE = 2304
"""Large, and no power of two: those are slow for some matmul libraries."""
MATMUL_FLOPS = 2 * MATMUL_SIZE**3


def limit_isa(isa: Isa | None) -> None:
    """Start this program over with both libraries held to `isa`: they read it when they load.

    Raises:
        typer.BadParameter: this processor does not have it.
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
    """Compute with `threads` threads, both libraries; 0: as many as torch took."""
    if threads:
        torch.set_num_threads(threads)


def check_device() -> None:
    """The host kernels are what is measured.

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
    """What the numbers depend on, recorded with them."""
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
