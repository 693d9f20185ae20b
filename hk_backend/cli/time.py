"""`hk-backend time`: how long a kernel takes on a GPU, by the model in the emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hk_backend.cli import errors
from hk_backend.cli import measure as measuring
from hk_backend.cli.output import JsonFlag, print_json, progress

KernelName = Annotated[
    str, typer.Argument(metavar="KERNEL", help="As `hk-backend kernels` lists it.")
]
ShapeText = Annotated[
    str,
    typer.Option(
        "--shape",
        help="batch=16,heads=64/8,tokens=4096,causal or m=4096,n=4096,k=4096. Attention also "
        "takes keys or cached, and block_size; tokens=512+64 are two requests.",
    ),
]
Arch = Annotated[str, typer.Option(help="Of the GPU.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the model; repeatable."),
]
ParametersFlag = Annotated[
    bool, typer.Option("--parameters", help="List the model's parameters, and nothing else.")
]
MeasuredFile = Annotated[
    Path | None,
    typer.Option(
        "--measured", metavar="FILE", help="Of --measure: what it has in place of the model's own."
    ),
]
MeasureFile = Annotated[
    Path | None,
    typer.Option(
        "--measure", metavar="FILE", help="Measure this machine's GPU into FILE, and nothing else."
    ),
]
SensitivityFlag = Annotated[
    bool, typer.Option(help="Replay with each unsure parameter at the ends of its range.")
]


def time(
    kernel: KernelName = "",
    shape: ShapeText = "",
    arch: Arch = "gfx950",
    settings: Settings = None,
    sensitivity: SensitivityFlag = True,
    parameters: ParametersFlag = False,
    measured: MeasuredFile = None,
    measure: MeasureFile = None,
    as_json: JsonFlag = False,
) -> None:
    """Model how long a kernel takes on a GPU, what bounds it, and where its clocks go.

    No GPU is needed: some of its workgroups are executed in the emulator and replayed on a model of
    the device. Exit code 1 if the kernel cannot be executed. `--measure` does need one: it asks the
    GPU of this machine, or of HK_DEVICE, what the model has to know.
    """
    if measure is not None:
        return measuring.measure(measure, as_json)
    known = measuring.parameters(measured, arch) if measured else {}
    if parameters:
        return _list_parameters(arch, known, as_json)
    _model(kernel, shape, arch, _changes(settings or (), arch, known), sensitivity, as_json)
    return None


def _model(
    kernel: str, shape: str, arch: str, changes: dict[str, float], sensitivity: bool, as_json: bool
) -> None:
    from hk_backend.kernels import CodeObjectError, catalogue
    from hk_backend.timing import report, shapes, tables

    for name, value in (("KERNEL", kernel), ("--shape", shape)):
        if not value:
            raise typer.BadParameter("it is missing", param_hint=name)
    with errors.in_one_line(progress, CodeObjectError):
        kernels = catalogue(arch)
        try:
            entry = kernels.kernel(kernel)
        except KeyError as error:
            raise typer.BadParameter(error.args[0], param_hint="KERNEL") from None
    try:
        workload = shapes.parse(entry, shape)
        with (
            errors.in_one_line(progress, CodeObjectError, RuntimeError),
            progress.status("") as line,
        ):
            found = report.collect(workload, changes, sensitivity=sensitivity, say=line.update)
    except shapes.ShapeError as error:
        raise typer.BadParameter(str(error), param_hint="--shape") from None
    except ValueError as error:  # parameters that each are possible, but not with this kernel
        raise typer.BadParameter(str(error), param_hint="--set") from None
    if as_json:
        return print_json(found.as_json())
    return tables.print_report(Console(), found)


def _changes(settings: Sequence[str], arch: str, measured: Mapping[str, float]) -> dict[str, float]:
    """What was measured, and `--set` on top of it, checked against the model's table."""
    from hk_backend import _emulator

    changes = dict(measured)
    for text in settings:
        name, _, value = text.partition("=")
        try:
            changes[name] = float(value)
            _emulator.TimingParameters(arch, changes)
        except ValueError as error:
            why = str(error) if "valid" in str(error) else "valid: NAME=NUMBER"
            raise typer.BadParameter(f"{text!r}: {why}", param_hint="--set") from None
    return changes


def _list_parameters(arch: str, measured: Mapping[str, float], as_json: bool) -> None:
    from dataclasses import asdict

    from hk_backend.timing import sensitivity, tables

    try:
        rows = sensitivity.table(arch, measured)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--arch") from None
    if as_json:
        return print_json([asdict(row) for row in rows])
    return tables.print_parameters(Console(), rows)
