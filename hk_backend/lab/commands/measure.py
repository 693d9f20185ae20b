"""`hk-backend time --measure`: measures the timing model's parameters on this machine's GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from hk_backend.config import ConfigError
from hk_backend.lab.tables import plain_table
from hk_backend.terminal import errors
from hk_backend.terminal.output import print_json, progress

if TYPE_CHECKING:
    from hk_backend.lab.timing.measured import Measured


def measure(path: Path, as_json: bool) -> None:
    """Measure the GPU, write the file, print it. Raises `typer.Exit`, `typer.BadParameter`."""
    from hk_backend.devices.base import DeviceError
    from hk_backend.devices.hip.emulated import EmulatorError
    from hk_backend.devices.hip.library import HipError
    from hk_backend.lab.bench.gpu.measure import gpu
    from hk_backend.lab.bench.gpu.measure import measure as run

    if not path.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {path.parent}", param_hint="--measure")
    known = (ConfigError, DeviceError, HipError, EmulatorError, OSError)
    with errors.in_one_line(progress, *known), progress.status("") as line:
        measured = run(gpu(), say=lambda name: line.update(f"measuring {name}"))
        measured.save(path)
    if as_json:
        return print_json(measured.as_json())
    return _print(Console(), measured, path)


def parameters(path: Path, arch: str) -> dict[str, float]:
    """Read a file's measured parameters for the model of `arch`. Raises `typer.BadParameter`."""
    from hk_backend import _emulator
    from hk_backend.lab.timing.measured import read

    try:
        found = read(path, arch)
        _emulator.TimingParameters(arch, found)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--measured") from None
    return found


def _print(console: Console, measured: Measured, path: Path) -> None:
    """Print measured and modelled values side by side, and how to use the file."""
    from hk_backend import _emulator

    table = plain_table("parameter", ">measured", ">model", "range", "unit", "model's certainty")
    values = measured.parameters
    for name, own, low, high, certainty, unit, *_ in _emulator.timing_parameters(measured.arch):
        if name in values:
            bounds = "" if low == high else f"{low:g} to {high:g}"
            table.add_row(name, f"{values[name]:.4g}", f"{own:g}", bounds, unit, certainty)
    console.print(f"{measured.device}, {len(measured.rows)} micro-kernels", highlight=False)
    console.print(table)
    console.print(f"written to {path}", highlight=False, soft_wrap=True)
    if measured.emulated:
        what = "an emulated device's clocks count instructions: the model refuses this file"
        console.print(f"[yellow]{what}[/yellow]", soft_wrap=True)
    else:
        what = f"use it: hk-backend time KERNEL --shape ... --measured {path}"
        console.print(what, highlight=False, soft_wrap=True)
