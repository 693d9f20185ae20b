"""`hk-backend time`: models how long a kernel takes on a GPU, in the emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from hk_backend.lab.commands import explain as explaining
from hk_backend.lab.commands import measure as measuring
from hk_backend.lab.commands import replay_trace
from hk_backend.terminal import errors
from hk_backend.terminal.output import JsonFlag, print_json, progress

if TYPE_CHECKING:
    from hk_backend.lab.timing.report import Report
    from hk_backend.lab.timing.shapes import Workload
    from hk_backend.lab.timing.timeline import Timeline

    Draw = Callable[[Report, Timeline, Path], list[Path]]

KernelName = Annotated[
    str, typer.Argument(metavar="KERNEL", help="As `hk-backend kernels` lists it.")
]
ShapeText = Annotated[
    str,
    typer.Option(
        "--shape",
        help="batch=16,heads=64/8,tokens=4096,causal; m=4096,n=4096,k=4096. Attention also takes "
        "keys or cached, and block_size; tokens=512+64 are two requests.",
    ),
]
Arch = Annotated[str, typer.Option(help="Arch of the GPU.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the model; repeatable."),
]
PictureFile = Annotated[
    Path | None,
    typer.Option(help="Draw a CU's timeline: .png or .svg; with another name, both."),
]
TimelineFile = Annotated[
    Path | None,
    typer.Option(
        help="Write the same timeline in the Chrome trace event format, which Perfetto opens."
    ),
]
ParametersFlag = Annotated[
    bool, typer.Option("--parameters", help="List the model's parameters, and nothing else.")
]
MeasuredFile = Annotated[
    Path | None,
    typer.Option(
        "--measured",
        metavar="FILE",
        help="A file that --measure wrote; its values replace the model's own.",
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
ExplainFlag = Annotated[
    bool,
    typer.Option(
        "--explain",
        help="Explain KERNEL gemm: which kernel serves the shape on a GPU, and why. Or attention: "
        "into how many parts its keys are split.",
    ),
]
FormatName = Annotated[
    str,
    typer.Option(
        "--format",
        help="For --explain gemm: bf16, fp8_block, mxfp4, mxfp4_weight_only; others list all.",
    ),
]
HeadSize = Annotated[int, typer.Option(help="For --explain attention: 64, 128 or 256.")]
TraceFolders = Annotated[
    list[Path] | None,
    typer.Option(
        "--trace",
        metavar="FOLDER",
        help="Replay a decoded thread trace of a GPU (rocprofv3 --att) and say how far the model "
        "is off; repeatable. With --measure FILE, costs of instructions in the traces are written.",
    ),
]
OwnData = Annotated[
    str,
    typer.Option(
        help="For --trace: where a workgroup's own data lie: l2, infinity-cache, hbm, or in the "
        "nearest that holds them."
    ),
]
Clocked = Annotated[
    int, typer.Option(min=0, help="For --explain: how many candidates the model times.")
]


def time(
    kernel: KernelName = "",
    shape: ShapeText = "",
    arch: Arch = "gfx950",
    settings: Settings = None,
    picture: PictureFile = None,
    timeline: TimelineFile = None,
    sensitivity: SensitivityFlag = True,
    parameters: ParametersFlag = False,
    measured: MeasuredFile = None,
    measure: MeasureFile = None,
    explain: ExplainFlag = False,
    format: FormatName = "bf16",
    head_size: HeadSize = 128,
    clocked: Clocked = 0,
    trace: TraceFolders = None,
    own_data: OwnData = "nearest",
    as_json: JsonFlag = False,
) -> None:
    """Model how long a kernel takes on a GPU, what bounds it, and where its clocks go.

    No GPU is needed: some of its workgroups are executed in the emulator and replayed on a model of
    the device. Exit code 1 if the kernel cannot be executed. `--measure` does need one: it asks the
    GPU of this machine, or of HK_DEVICE, what the model has to know.
    """
    if trace:
        known = measuring.parameters(measured, arch) if measured else {}
        changes = _changes(settings or (), arch, known)
        return replay_trace.replay_traces(trace, arch, changes, own_data, picture, measure, as_json)
    if measure is not None:
        return measuring.measure(measure, as_json)
    if explain:
        return explaining.explain(kernel, shape, format, head_size, arch, clocked, as_json)
    known = measuring.parameters(measured, arch) if measured else {}
    if parameters:
        return _list_parameters(arch, known, as_json)
    from hk_backend.lab.timing import chrome_trace, report, tables
    from hk_backend.lab.timing import timeline as timelines

    workload = _workload(kernel, shape, arch)
    changes = _changes(settings or (), arch, known)
    draw = _drawing(picture) if picture else None
    _check_folder(timeline, "--timeline")
    pictures: list[Path] = []
    with _errors_in_words(changes), progress.status("") as line:
        found = report.collect(workload, changes, sensitivity=sensitivity, say=line.update)
        if picture or timeline:
            line.update("drawing")
            shown = timelines.timeline(found)
        if draw and picture:
            pictures = draw(found, shown, picture)
        if timeline:
            chrome_trace.write(found, shown, timeline)
    if as_json:
        drawn = {"pictures": [str(file) for file in pictures]}
        traced = {"timeline": str(timeline)} if timeline else {}
        return print_json({**found.as_json(), **drawn, **traced})
    tables.print_report(Console(), found, pictures, timeline)
    return None


def _workload(kernel: str, shape: str, arch: str) -> Workload:
    """The workload of the arguments; ends the command if they name no kernel or shape."""
    from hk_backend.kernels import CodeObjectError, catalogue
    from hk_backend.lab.timing import shapes

    if not kernel:
        raise typer.BadParameter("it is missing", param_hint="KERNEL")
    with errors.in_one_line(progress, CodeObjectError):
        try:
            entry = catalogue(arch).kernel(kernel)
        except KeyError as error:
            said = f"{error.args[0]} (hk-backend kernels lists them all)"
            raise typer.BadParameter(said, param_hint="KERNEL") from None
        if not shape:
            raise typer.BadParameter("it is missing", param_hint="--shape")
        try:
            return shapes.parse(entry, shape)
        except shapes.ShapeError as error:
            raise typer.BadParameter(str(error), param_hint="--shape") from None


def _changes(settings: Sequence[str], arch: str, measured: Mapping[str, float]) -> dict[str, float]:
    """Measured parameters, and `--set` on top of them, checked against the model's table."""
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


def _drawing(path: Path) -> Draw:
    """The function that draws a picture; ends the command early if it cannot draw."""
    from hk_backend.extras import missing

    _check_folder(path, "--picture")
    try:
        from hk_backend.lab.timing.picture import draw
    except ModuleNotFoundError as error:
        errors.say(progress, missing(error, "--picture", "bench"))
        raise typer.Exit(1) from None
    return draw


def _check_folder(path: Path | None, option: str) -> None:
    if path and not path.parent.is_dir():
        raise typer.BadParameter(f"{path.parent} is not a folder", param_hint=option)


@contextmanager
def _errors_in_words(changes: Mapping[str, float]) -> Iterator[None]:
    """Report errors that show only when the kernel runs, is replayed or is drawn."""
    from hk_backend.kernels import CodeObjectError
    from hk_backend.lab.timing.shapes import ShapeError

    with errors.in_one_line(progress, CodeObjectError, OSError, RuntimeError):
        try:
            yield
        except ShapeError as error:
            raise typer.BadParameter(str(error), param_hint="--shape") from None
        except ValueError as error:  # each parameter is possible, but not with this kernel
            if not changes:
                raise
            raise typer.BadParameter(str(error), param_hint="--set") from None


def _list_parameters(arch: str, measured: Mapping[str, float], as_json: bool) -> None:
    from dataclasses import asdict

    from hk_backend.lab.timing import sensitivity, tables

    try:
        rows = sensitivity.table(arch, measured)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--arch") from None
    if as_json:
        return print_json([asdict(row) for row in rows])
    return tables.print_parameters(Console(), rows)
