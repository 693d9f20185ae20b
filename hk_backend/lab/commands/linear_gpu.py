"""`hk-backend bench linear --device`: compares HK's launches on a GPU with published figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

import typer

from hk_backend.config import ConfigError
from hk_backend.lab.commands import benchmark
from hk_backend.lab.options import is_given
from hk_backend.terminal import errors
from hk_backend.terminal.output import progress

if TYPE_CHECKING:
    from hk_backend.lab.bench.gemm.timers import Timer

ALWAYS = ("context", "device", "as_json")


def linear(
    context: typer.Context, device: str, chosen: Mapping[str, str], as_json: bool
) -> NoReturn:
    """Time the launches, print the comparison and end the command.

    `chosen`: options by their names. Raises `typer.BadParameter` for another option that was given,
    or for a value without published figures.
    """
    from hk_backend import __version__
    from hk_backend.devices.base import DeviceError
    from hk_backend.kernels import CodeObjectError
    from hk_backend.lab.bench.gemm import compare
    from hk_backend.lab.timing.calibration import statement
    from hk_backend.measurements.launches import timed_on

    for name in context.params.keys() - {*ALWAYS, *chosen}:
        if is_given(context, name):
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"{option}: not with --device {device}")
    given = {name: value for name, value in chosen.items() if is_given(context, name)}
    with errors.in_one_line(progress, ConfigError, DeviceError, CodeObjectError):
        timer = timer_of(device)
        sweep = compare.PublishedSweep.parse(timer, timed_on(timer.name), **given)
    environment = {
        "device": timer.device or device,
        "arch": timer.arch,
        "figures": timer.source if timer.device else statement("gemm"),
        "hk": __version__,
    }
    with errors.in_one_line(progress, DeviceError, CodeObjectError):
        benchmark.run(sweep, environment, compare.TABLE.print, as_json)


def timer_of(device: str) -> Timer:
    """The timer of device `hip` or `emulated:ARCH`.

    Raises:
        DeviceError: there is no GPU.
        ValueError: the device is another one, or its arch has no timing model.
    """
    kind, _, arch = device.partition(":")
    if kind == "emulated":
        from hk_backend.lab.bench.gemm.compare import clock

        return clock(arch)
    if kind != "hip":
        raise ValueError(f"{device!r} is not hip or emulated:ARCH, as in emulated:gfx950")
    from hk_backend.lab.bench.gemm.gpu import this_gpu

    return this_gpu()
