"""`hk-backend time --trace`: replays thread traces of a GPU, and says how far the clock is off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from hk_backend.lab.tables import plain_table
from hk_backend.terminal import errors
from hk_backend.terminal.output import print_json, progress

if TYPE_CHECKING:
    from hk_backend import _emulator
    from hk_backend.lab.timing.hardware.dispatch import Dispatch
    from hk_backend.lab.timing.hardware.errors import Errors, Pair
    from hk_backend.lab.timing.hardware.replay import Beside

OWN = ("nearest", "l2", "infinity-cache", "hbm")
"""Places of a workgroup's own data, for `--own-data`; `nearest`: the nearest that holds them."""
KEPT_PARTS = 4
"""Parts of a folder's path that name a trace: kernel, viewer, size, dispatch."""


@dataclass(frozen=True)
class Replayed:
    """One dispatch beside the clock."""

    name: str
    dispatch: Dispatch
    besides: Sequence[Beside]
    errors: Errors


def replay_traces(
    folders: Sequence[Path],
    arch: str,
    changes: Mapping[str, float],
    own_data: str,
    picture: Path | None,
    extract: Path | None,
    as_json: bool,
) -> None:
    """Replay decoded dispatches and print the errors; `extract`: the file for what they measure.

    Raises `typer.Exit`, `typer.BadParameter`.
    """
    from hk_backend import _emulator
    from hk_backend.lab.timing.hardware.dispatch import DispatchError, read
    from hk_backend.lab.toolchain.compiler import ToolchainError

    if own_data not in OWN:
        raise typer.BadParameter(f"{own_data!r}; valid: {', '.join(OWN)}", param_hint="--own-data")
    if picture and len(folders) > 1:
        raise typer.BadParameter("it shows one --trace, not several", param_hint="--picture")
    for path, option in ((picture, "--picture"), (extract, "--measure")):
        if path and not path.parent.is_dir():
            raise typer.BadParameter(f"{path.parent} is not a folder", param_hint=option)
    try:  # before the traces are read
        _emulator.TimingParameters(arch, dict(changes))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--arch") from None
    with errors.in_one_line(progress, DispatchError, ToolchainError, OSError):
        read_ones = [(folder, read(folder)) for folder in folders]
        replayed = [
            _replayed(str(f), dispatch, arch, _parameters(dispatch, arch, changes, own_data))
            for f, dispatch in read_ones
        ]
        files = _draw(replayed[0], picture) if picture else []
        measured = _extract(replayed, arch, extract) if extract else {}
    if as_json:
        return print_json(
            {
                "arch": arch,
                "set": dict(changes),
                "own_data": own_data,
                "traces": [{"trace": each.name, **each.errors.as_json()} for each in replayed],
                "pictures": [str(file) for file in files],
                "measured": measured,
            }
        )
    return _print(Console(), replayed, files, extract, measured)


def _parameters(
    dispatch: Dispatch, arch: str, changes: Mapping[str, float], own_data: str
) -> _emulator.TimingParameters:
    from hk_backend import _emulator
    from hk_backend.lab.timing.hardware import residence

    plain = _emulator.TimingParameters(arch, dict(changes))
    places: dict[str, Mapping[str, float]] = {
        "nearest": residence.resident(dispatch, plain),
        "l2": residence.in_l2(plain),
        "infinity-cache": residence.in_infinity_cache(plain),
        "hbm": residence.in_hbm(),
    }
    return _emulator.TimingParameters(arch, {**places[own_data], **changes})


def _replayed(
    name: str, dispatch: Dispatch, arch: str, parameters: _emulator.TimingParameters
) -> Replayed:
    from hk_backend.lab.timing.hardware.assembly import kernel_of
    from hk_backend.lab.timing.hardware.assumed import steady_loop
    from hk_backend.lab.timing.hardware.errors import errors as errors_of
    from hk_backend.lab.timing.hardware.replay import replay
    from hk_backend.lab.toolchain import compiler

    kernel = kernel_of(dispatch.lines, arch, compiler.find())
    besides = list(replay(dispatch, kernel, parameters))
    return Replayed(
        name, dispatch, besides, errors_of(besides, dispatch.lines, steady_loop(dispatch))
    )


def _draw(replayed: Replayed, path: Path) -> list[Path]:
    from hk_backend.extras import missing
    from hk_backend.lab.timing.hardware.assumed import steady_loop

    try:
        from hk_backend.lab.timing.hardware.picture import draw
    except ModuleNotFoundError as error:
        errors.say(progress, missing(error, "--picture", "bench"))
        raise typer.Exit(1) from None
    dispatch = replayed.dispatch
    engine = dispatch.engines[0]
    own = [beside for beside in replayed.besides if beside.wave.engine == engine]
    title = f"{dispatch.name}, shader engine {engine}"
    return draw(own, dispatch.lines, steady_loop(dispatch), title, path)


def _extract(replayed: Sequence[Replayed], arch: str, path: Path) -> dict[str, float]:
    from hk_backend.lab.timing.hardware.extraction import extracted

    found = extracted([(_source(each.name), each.dispatch) for each in replayed], arch)
    found.save(path)
    return found.parameters


def _source(folder: str) -> str:
    """The end of a folder's path, which names kernel and dispatch, and not the reader's machine."""
    return "/".join(Path(folder).parts[-KEPT_PARTS:])


def _print(
    console: Console,
    replayed: Sequence[Replayed],
    files: Sequence[Path],
    extract: Path | None,
    measured: Mapping[str, float],
) -> None:
    for each in replayed:
        _print_errors(console, each)
    for file in files:
        console.print(f"picture: {file}", highlight=False, soft_wrap=True)
    if extract:
        said = ", ".join(f"{name} {value:g}" for name, value in measured.items())
        console.print(f"measured: {said}", highlight=False, soft_wrap=True)
        console.print(f"written to {extract}", highlight=False, soft_wrap=True)


def _print_errors(console: Console, each: Replayed) -> None:
    found = each.errors
    console.print(f"[bold]{each.name}[/bold]: {found.waves} waves", soft_wrap=True)
    table = plain_table("clocks of the average wave", ">hardware", ">model", ">error")
    rows: list[tuple[str, Pair | None]] = [
        ("first to last instruction", found.ends),
        ("before the loop", found.before),
        ("a turn of the loop", found.turn),
        ("behind the loop", found.after),
    ]
    for name, pair in rows:
        if pair:
            table.add_row(name, *_cells(pair))
    for kind, pair in found.stalls.items():
        table.add_row(f"  waits at: {kind}", *_cells(pair)[:2], "")
    console.print(table)
    said = f"mean absolute error of the waves' ends: {found.mean_absolute_end:.1%}"
    console.print(said, highlight=False)
    console.print()


def _cells(pair: Pair) -> tuple[str, str, str]:
    return f"{pair.hardware:,.0f}", f"{pair.model:,.0f}", f"{pair.error:+.1%}"
