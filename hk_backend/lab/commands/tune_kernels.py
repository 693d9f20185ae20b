"""`hk-backend tune-kernels`: finds the fastest of HK's GPU kernels for each linear layer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from hk_backend.terminal import errors
from hk_backend.terminal.output import JsonFlag, print_json, progress

if TYPE_CHECKING:
    from hk_backend.kernels.catalogue import Catalogue
    from hk_backend.lab.bench.gemm.timers import Problem
    from hk_backend.lab.bench.gemm.tune import TunedProblem

Device = Annotated[
    str, typer.Option(help="hip; or emulated:gfx950, by the timing model, without a GPU.")
]
Models = Annotated[str, typer.Option("--model", help="Any of llama8b, llama70b.")]
Ranks = Annotated[str, typer.Option("--tp", help="Tensor-parallel sizes: GPUs that share a layer.")]
Shapes = Annotated[
    str,
    typer.Option(metavar="MxNxK,...", help="These instead of a model's: rows, outputs, inputs."),
]
Formats = Annotated[
    str,
    typer.Option(help="Such as bf16, fp8_block, mxfp4, mxfp4_weight_only; other words list all."),
]
Tokens = Annotated[str, typer.Option(help="Rows of the activations.")]
Candidates = Annotated[
    int, typer.Option(min=1, help="How many of the planner's best are timed for each.")
]


def tune_kernels(
    device: Device = "hip",
    model: Models = "llama8b,llama70b",
    tp: Ranks = "1,8",
    shapes: Shapes = "",
    formats: Formats = "bf16,fp8_channel",
    tokens: Tokens = "1,2,4,8,16,32,64,128,256,512,1024,2048,4096,8192,16384",
    candidates: Candidates = 4,
    as_json: JsonFlag = False,
) -> None:
    """Time HK's kernels for linear layers on this GPU, and keep the fastest of each.

    They are kept in the folder of measurements, where a server finds them. If interrupted, run the
    same command to resume. Exit code 1 if a launch could not be timed; 130 after Ctrl-C.
    """
    from hk_backend.config import ConfigError
    from hk_backend.devices.base import DeviceError
    from hk_backend.kernels import CodeObjectError
    from hk_backend.kernels.catalogue import catalogue
    from hk_backend.lab.bench.gemm.tune import Tune
    from hk_backend.lab.commands.linear_gpu import timer_of

    with errors.in_one_line(progress, ConfigError, DeviceError, CodeObjectError):
        try:
            timer = timer_of(device)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--device") from None
        kernels = catalogue(timer.arch)
        asked = _problems(model, tp, shapes, formats, tokens, kernels)
        job = Tune(asked, kernels, timer, candidates)
        found = []
        try:
            with progress.status("") as line:
                for each in job.run():
                    found.append(each)
                    line.update(f"{len(found)}/{len(job.problems)}  {each.problem}")
        except KeyboardInterrupt:
            kept = job.kept + sum(each.launch is not None for each in found)
            said = f"Interrupted, {job.path} has {kept} launches; run the same command."
            errors.say(progress, said)
            raise typer.Exit(130) from None
    if as_json:
        print_json({"kept": job.kept, "launches": [each.as_json() for each in found]})
    else:
        _print(Console(), found, job.kept, job.path)
    raise typer.Exit(1 if any(each.error for each in found) else 0)


def _problems(
    model: str, tp: str, shapes: str, formats: str, tokens: str, kernels: Catalogue
) -> list[Problem]:
    """The problems that the options name, each once. Raises `typer.BadParameter`."""
    from hk_backend.kernels.gemm_operands import LAYERS, family
    from hk_backend.lab.bench.gemm.layers import MODELS, weights
    from hk_backend.lab.bench.gemm.timers import Problem
    from hk_backend.lab.options import parse_names, parse_numbers

    named = parse_names(formats, list(LAYERS), "--formats")
    for name in named:
        if not family(kernels, LAYERS[name]):
            why = f"--formats: {kernels.arch} has no kernels for {name}"
            raise typer.BadParameter(why)
    sizes = _sizes(shapes)
    if not shapes:
        rows = parse_numbers(tokens, "--tokens")
        for each in parse_names(model, list(MODELS), "--model"):
            for ranks in parse_numbers(tp, "--tp"):
                try:
                    found = weights(each, ranks).values()
                except ValueError as error:
                    raise typer.BadParameter(f"--tp: {error}") from None
                sizes += [(m, n, k) for n, k in found for m in rows]
    every = [Problem(LAYERS[name], *size) for name in named for size in sizes]
    return list(dict.fromkeys(every))


def _sizes(shapes: str) -> list[tuple[int, int, int]]:
    """Parse `--shapes`, as in `16x6144x4096,...`. Raises `typer.BadParameter`."""
    sizes = []
    for part in filter(None, (part.strip() for part in shapes.split(","))):
        numbers = part.split("x")
        if len(numbers) != 3 or not all(each.isdecimal() and int(each) for each in numbers):
            why = f"--shapes: {part!r} is not MxNxK, as in 16x6144x4096"
            raise typer.BadParameter(why)
        m, n, k = map(int, numbers)
        sizes.append((m, n, k))
    return sizes


def _print(console: Console, found: Sequence[TunedProblem], kept: int, path: Path) -> None:
    """Print how many launches were timed, how much they gain, and where they are kept."""
    for each in found:
        if each.error:
            errors.say(progress, f"{each.problem}: {each.error}")
    better = [each.planned / each.launch.microseconds for each in found if each.launch]
    others = [ratio for ratio in better if ratio > 1]
    said = f"{len(better)} launches timed, {kept} were already in the file"
    if others:
        said += (
            f"; for {len(others)} another kernel or number of splits than the planner's is faster, "
            f"by up to {max(others) - 1:.0%}"
        )
    console.print(said, highlight=False)
    console.print(f"kept in {path}", highlight=False, soft_wrap=True)
