"""Explains which kernel serves a linear layer on a GPU."""

from __future__ import annotations

from functools import partial

import typer
from rich.console import Console

from hk_backend import _emulator
from hk_backend.kernels import catalogue
from hk_backend.kernels.gemm_operands import LAYERS, family
from hk_backend.lab.bench.gemm.explain import GemmExplanation
from hk_backend.lab.bench.gemm.explain import explain as explained
from hk_backend.lab.bench.gemm.layers import Layer
from hk_backend.lab.bench.gemm.timers import Clock
from hk_backend.lab.bench.rivals import table
from hk_backend.lab.commands.explain import Asked, Explanation
from hk_backend.lab.timing import shapes
from hk_backend.lab.timing.calibration import statement
from hk_backend.measurements.launches import timed_here
from hk_backend.terms.measurements import MEASURED


def explain(asked: Asked) -> Explanation:
    """Explains a layer of this shape and format. Raises `typer.BadParameter` if there is none."""
    layer, m = _layer(asked.shape, asked.format, asked.arch)
    found = explained(layer, m, Clock(asked.arch, 1), asked.clocked, asked.say)
    return Explanation(found.as_json(), partial(_show, found))


def _layer(shape: str, format: str, arch: str) -> tuple[Layer, int]:
    if format not in LAYERS:
        there = ", ".join(LAYERS)
        raise typer.BadParameter(f"{format!r} is not one of {there}", param_hint="--format")
    kernels = family(catalogue(arch), LAYERS[format])
    if not kernels:
        raise typer.BadParameter(f"{arch} has no kernels for {format}", param_hint="--format")
    try:
        sizes = shapes.parse(kernels[0], shape).shape
    except shapes.ShapeError as error:
        raise typer.BadParameter(str(error), param_hint="--shape") from None
    units = int(_emulator.TimingParameters(arch)["compute_units"])
    return Layer(format, sizes.n, sizes.k, kernels, units, timed_here(arch)), sizes.m


def _show(found: GemmExplanation, console: Console) -> None:
    choice, bound = found.choice, found.bound
    console.print(
        f"[bold]{found.layer}, M={found.m}[/bold] on {choice.entry.arch}", highlight=False
    )
    console.print(
        f"{choice.entry.name}, splits {choice.splits}: [bold]{choice.microseconds:.4g} us[/bold] "
        f"({choice.source})",
        highlight=False,
    )
    if choice.source != MEASURED:
        console.print(statement("gemm"), style="yellow", highlight=False)
    console.print(
        f"bound by {bound.name}: matrix units {bound.matrix:.3g} us, memory {bound.memory:.3g} us",
        highlight=False,
    )
    console.print()
    console.print(table(found.rivals, workgroups="groups"))
