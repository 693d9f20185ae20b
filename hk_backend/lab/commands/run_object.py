"""`hk-backend run-object`: executes a kernel of any code object in the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from hk_backend.terminal import errors
from hk_backend.terminal.output import JsonFlag, print_json, progress

if TYPE_CHECKING:
    from hk_backend import _emulator
    from hk_backend.lab.foreign.object_file import ObjectFile
    from hk_backend.lab.foreign.object_run import ObjectLaunch

ObjectPath = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="A code object for gfx942 or gfx950, or a bundle of hipcc.",
    ),
]
KernelName = Annotated[
    str, typer.Argument(metavar="KERNEL", help="Needed if the file has several kernels.")
]
Grid = Annotated[str, typer.Option(metavar="X[,Y[,Z]]", help="Number of workgroups.")]
Block = Annotated[
    str, typer.Option(metavar="X[,Y[,Z]]", help="Number of work-items of a workgroup.")
]
Texts = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        metavar="VALUE",
        help="An argument; repeat it in the kernel's order. 4096, 0x10, 0.5, none, bf16=0.5, "
        "bytes:00ff, or a tensor: f32[64,128]=normal (zeros, ones, nan, arange, a number, "
        "FILE.npy).",
    ),
]
Saves = Annotated[
    list[str] | None,
    typer.Option(
        "--save",
        metavar="NUMBER=FILE",
        help="Write a tensor after the run, by its argument's number from 0 on, as numpy's .npy; "
        "bf16 and FP8 become float32. Repeatable.",
    ),
]
DynamicLds = Annotated[
    int, typer.Option("--dynamic-lds", min=0, help="Bytes of LDS beside the kernel's own.")
]
Seed = Annotated[
    int,
    typer.Option(
        min=0,
        max=2**32,
        help="For random tensors and the order of waves; 0: workgroups in their order.",
    ),
]
Threads = Annotated[
    int, typer.Option(min=0, help="Workgroups that run at once; 0: one for each processor.")
]
Arch = Annotated[str, typer.Option(help="The arch to take from a bundle of several.")]
TimeFlag = Annotated[
    bool, typer.Option("--time", help="Also model how long the launch takes on a GPU.")
]
RunFlag = Annotated[
    bool,
    typer.Option(help="With --time: --no-run executes only the workgroups that it must trace."),
]
ListFlag = Annotated[
    bool, typer.Option("--list", help="List kernels and arguments, and nothing else.")
]


def run_object(
    file: ObjectPath,
    kernel: KernelName = "",
    grid: Grid = "",
    block: Block = "",
    arguments: Texts = None,
    save: Saves = None,
    dynamic_lds: DynamicLds = 0,
    seed: Seed = 1,
    threads: Threads = 0,
    arch: Arch = "",
    time: TimeFlag = False,
    run: RunFlag = True,
    listed: ListFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Execute a kernel of any AMD code object (Triton, HIP, assembly), and check what it does.

    No GPU is needed. Exit code 1 if there are findings or the kernel cannot run.
    """
    from hk_backend.lab.foreign import tensors
    from hk_backend.lab.foreign.object_run import ObjectLaunch, ObjectRun

    found = _load(file, arch)
    if listed:
        return _list(found, kernel, as_json)
    if not (run or time):
        raise typer.BadParameter("nothing is left to do without --time", param_hint="--no-run")
    chosen = _kernel(found, kernel)
    launch = ObjectLaunch(
        found,
        chosen,
        _sizes(grid, "--grid"),
        _sizes(block, "--block"),
        arguments or [],
        dynamic_lds,
        seed,
        threads,
    )
    values = _values(launch)
    targets = _targets(save or [], values, run)
    with errors.in_one_line(progress, ValueError, RuntimeError, OSError):
        with progress.status(f"executing {chosen.name}"):
            ran = launch.execute(values) if run else None
        for path, tensor in targets.items():
            tensors.save(tensor, path)
        with progress.status(f"timing {chosen.name}"):
            took, untimed = launch.time(ran) if time else (None, "")
    done = ObjectRun(launch, ran, took, untimed, list(targets))
    if as_json:
        print_json(done.as_json())
    else:
        done.print(Console())
    if ran and ran.findings:
        raise typer.Exit(1)
    return None


def _load(path: Path, arch: str) -> ObjectFile:
    from hk_backend.lab.foreign import object_file

    with errors.in_one_line(progress, object_file.ObjectError, OSError):
        return object_file.load(path, arch)


def _kernel(file: ObjectFile, name: str) -> _emulator.Kernel:
    """The kernel to launch; ends the command with the names if it is not clear which."""
    from hk_backend.lab.foreign import object_file, report

    try:
        return file.kernel(name)
    except object_file.ObjectError as error:
        report.print_kernels(progress, file.code.kernels)
        raise typer.BadParameter(str(error), param_hint="KERNEL") from None


def _values(launch: ObjectLaunch) -> list[Any]:
    """The arguments' values; ends the command if they do not fit the kernel."""
    from hk_backend.lab.foreign import arguments, report

    try:
        return launch.values()
    except arguments.ArgumentError as error:
        if isinstance(error, arguments.WrongCount):
            report.print_arguments(progress, launch.kernel)
        raise typer.BadParameter(str(error), param_hint="--arg") from None


def _list(file: ObjectFile, name: str, as_json: bool) -> None:
    """List one kernel with its arguments, or all kernels of a file that has several."""
    from hk_backend.lab.foreign import report

    kernels = [_kernel(file, name)] if name else file.code.kernels
    if as_json:
        return print_json([report.plain_kernel(kernel) for kernel in kernels])
    console = Console()
    if len(kernels) == 1:
        report.print_arguments(console, kernels[0])
    else:
        report.print_kernels(console, kernels)
    return None


def _sizes(text: str, option: str) -> list[int]:
    """One to three sizes."""
    if not text:
        raise typer.BadParameter("it is missing", param_hint=option)
    try:
        sizes = [int(size, 0) for size in text.split(",")]
    except ValueError:
        sizes = []
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1 or max(sizes) >= 2**32:
        valid = "one to three numbers from 1 on, as in 16 or 16,4"
        raise typer.BadParameter(f"{text!r}; valid: {valid}", param_hint=option)
    return sizes


def _targets(texts: Sequence[str], values: Sequence[Any], run: bool) -> dict[Path, Any]:
    """The tensors to write, by file."""
    import torch

    targets = {}
    for text in texts:
        number, _, name = text.partition("=")
        tensors = [str(i) for i, value in enumerate(values) if isinstance(value, torch.Tensor)]
        if number not in tensors or not name:
            valid = f"NUMBER=FILE; numbers of tensors: {', '.join(tensors) or 'none'}"
            raise typer.BadParameter(f"{text!r}; valid: {valid}", param_hint="--save")
        if not run:
            raise typer.BadParameter(f"{text!r} needs a run", param_hint="--save")
        path = Path(name)
        if not path.parent.is_dir():
            raise typer.BadParameter(f"{path.parent} is not a folder", param_hint="--save")
        targets[path] = values[int(number)]
    return targets
