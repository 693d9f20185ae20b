"""`hk-backend time --explain`: explains how a layer is served on a GPU.

For `gemm` it shows which kernel serves a linear layer, and why. For `attention` it shows how the
keys of a step are dealt to workgroups.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from hk_backend.config import ConfigError
from hk_backend.terminal import errors
from hk_backend.terminal.output import print_json, progress

if TYPE_CHECKING:
    from hk_backend.lab.bench.attention.explain import AttentionExplanation
    from hk_backend.lab.bench.gemm.explain import GemmExplanation
    from hk_backend.lab.bench.gemm.layers import Layer

    Say = Callable[[str], object]


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
    from hk_backend.kernels import CodeObjectError

    if kernel not in ("gemm", "attention"):
        expected = f"{kernel!r} with --explain; valid: gemm, attention"
        raise typer.BadParameter(expected, param_hint="KERNEL")
    found: AttentionExplanation | GemmExplanation
    show: Callable[[Console], None]
    known = (CodeObjectError, ConfigError, RuntimeError)
    with errors.in_one_line(progress, *known), progress.status("") as line:
        if kernel == "attention":
            found = attention = _of_attention(shape, head_size, arch, clocked, line.update)
            show = partial(_print_attention, found=attention)
        else:
            found = gemm = _of_gemm(shape, format, arch, clocked, line.update)
            show = partial(_print_gemm, found=gemm)
    if as_json:
        return print_json(found.as_json())
    show(Console())
    return None


def _of_gemm(shape: str, format: str, arch: str, clocked: int, say: Say) -> GemmExplanation:
    from hk_backend.lab.bench.gemm.explain import explain
    from hk_backend.lab.bench.gemm.timers import Clock

    layer, m = _layer(shape, format, arch)
    return explain(layer, m, Clock(arch, 1), clocked, say)


def _of_attention(
    shape: str, head_size: int, arch: str, clocked: int, say: Say
) -> AttentionExplanation:
    from hk_backend import _emulator
    from hk_backend.kernels import catalogue
    from hk_backend.kernels.masks import PART
    from hk_backend.lab.bench.attention.explain import explain
    from hk_backend.lab.timing import shapes
    from hk_backend.lab.timing.workloads import attention

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
        return explain(kernels, sizes, head_size, units, clocked, say)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--shape") from None


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


def _print_attention(console: Console, found: AttentionExplanation) -> None:
    from hk_backend.lab.bench.rivals import table
    from hk_backend.lab.timing.calibration import statement

    best, facts = found.rivals[0], found.rivals[0].facts
    parts, keys = facts["parts"], facts["keys"]
    shared = f"keys in {parts} parts of {keys}" if parts != 1 else "keys not shared"
    dealt = f"{facts['rows']} rows to a workgroup, {shared}"
    console.print(f"[bold]{dealt}[/bold], {best.planned:.4g} us (planned)", highlight=False)
    console.print(statement("attention_prefill"), style="yellow", highlight=False)
    console.print("with the kernel that joins parts, and the gaps before both\n", highlight=False)
    console.print(table(found.rivals))


def _print_gemm(console: Console, found: GemmExplanation) -> None:
    from hk_backend.lab.bench.rivals import table
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
    console.print(table(found.rivals, workgroups="groups"))
