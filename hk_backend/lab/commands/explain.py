"""`hk-backend time --explain`: explains how a layer is served on a GPU.

For `gemm` it shows which kernel serves a linear layer, and why. For `attention` it shows how the
keys of a step are dealt to workgroups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from hk_backend.config import ConfigError
from hk_backend.terminal import errors
from hk_backend.terminal.output import print_json, progress

if TYPE_CHECKING:
    from hk_backend.lab.bench.attention.explain import Explanation as PartsExplanation
    from hk_backend.lab.bench.gemm.explain import Explanation
    from hk_backend.lab.bench.gemm.layers import Layer


def explain(
    kernel: str,
    shape: str,
    format: str,
    head_size: int,
    arch: str,
    clocked: int,
    as_json: bool,
) -> None:
    """Print the explanation. Raises `typer.BadParameter` if the arguments name no layer."""
    if kernel not in ("gemm", "attention"):
        expected = f"{kernel!r} with --explain; valid: gemm, attention"
        raise typer.BadParameter(expected, param_hint="KERNEL")
    if kernel == "attention":
        return _explain_attention(shape, head_size, arch, clocked, as_json)
    return _explain_gemm(shape, format, arch, clocked, as_json)


def _explain_gemm(shape: str, format: str, arch: str, clocked: int, as_json: bool) -> None:
    from hk_backend.kernels import CodeObjectError
    from hk_backend.lab.bench.gemm import explain as explaining
    from hk_backend.lab.bench.gemm.timers import Clock

    with errors.in_one_line(progress, CodeObjectError, ConfigError, RuntimeError):
        layer, m = _layer(shape, format, arch)
        with progress.status("") as line:
            found = explaining.explain(layer, m, Clock(arch, 1), clocked, line.update)
    if as_json:
        return print_json(found.as_json())
    _print(Console(), found)
    return None


def _explain_attention(shape: str, head_size: int, arch: str, clocked: int, as_json: bool) -> None:
    from hk_backend import _emulator
    from hk_backend.kernels import CodeObjectError, catalogue
    from hk_backend.kernels.masks import PART
    from hk_backend.lab.bench.attention import explain as explaining
    from hk_backend.lab.timing import shapes
    from hk_backend.lab.timing.workloads import attention

    with errors.in_one_line(progress, CodeObjectError, RuntimeError):
        kernels = catalogue(arch)
        of_parts = [
            entry
            for entry in kernels.families.get("attention_prefill", ())
            if entry.facts["mask"] == PART and entry.facts["keys"] == "paged"
        ]
        if not of_parts:
            raise typer.BadParameter(f"{arch} has no kernels for parts", param_hint="--arch")
        units = int(_emulator.TimingParameters(arch)["compute_units"])
        try:
            sizes = shapes.parse(of_parts[0], shape).shape
            assert isinstance(sizes, attention.Shape)
            with progress.status("") as line:
                found = explaining.explain(kernels, sizes, head_size, units, clocked, line.update)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--shape") from None
    if as_json:
        return print_json(found.as_json())
    _print_parts(Console(), found)
    return None


def _print_parts(console: Console, found: PartsExplanation) -> None:
    from hk_backend.lab.timing.calibration import statement

    best = found.rivals[0]
    keys = f"keys in {best.parts} parts of {best.keys}" if best.parts > 1 else "keys not shared"
    dealt = f"{best.rows} rows to a workgroup, {keys}"
    console.print(f"[bold]{dealt}[/bold], {best.planned:.4g} us (planned)", highlight=False)
    console.print(statement("attention_prefill"), style="yellow", highlight=False)
    console.print("with the kernel that joins parts, and the gaps before both\n", highlight=False)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("rows", "parts", "keys", "workgroups", "planned us", "clock us"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in found.rivals:
        clocked = "" if each.clocked is None else f"{each.clocked:.4g}"
        sizes = map(str, (each.rows, each.parts, each.keys, each.workgroups))
        table.add_row(*sizes, f"{each.planned:.4g}", clocked)
    console.print(table)


def _layer(shape: str, format: str, arch: str) -> tuple[Layer, int]:
    """The layer that the options name, and its number of rows. Raises `typer.BadParameter`."""
    from hk_backend import _emulator
    from hk_backend.kernels import catalogue
    from hk_backend.kernels.gemm_formats import LAYERS, family
    from hk_backend.lab.bench.gemm.layers import Layer
    from hk_backend.lab.timing import shapes
    from hk_backend.lab.timing.workloads import gemm
    from hk_backend.measurements.launches import timed_here

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
    assert isinstance(sizes, gemm.Shape)
    units = int(_emulator.TimingParameters(arch)["compute_units"])
    return Layer(format, sizes.n, sizes.k, kernels, units, timed_here(arch)), sizes.m


def _print(console: Console, found: Explanation) -> None:
    from hk_backend.lab.timing.calibration import statement
    from hk_backend.terms.measurements import MEASURED

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
    console.print(_rivals(found))


def _rivals(found: Explanation) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("kernel", "tile", "splits", "groups", "rounds", "planned us", "clock us"):
        left = heading in ("kernel", "tile")
        table.add_column(heading, justify="left" if left else "right", no_wrap=left)
    for each in found.rivals:
        clocked = "" if each.clocked is None else f"{each.clocked:.4g}"
        numbers = (each.splits, each.workgroups, each.rounds, f"{each.planned:.4g}", clocked)
        table.add_row(each.kernel, each.tile, *map(str, numbers))
    return table
