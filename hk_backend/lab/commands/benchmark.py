"""Parts of every benchmark: options make a sweep, which yields rows for a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import typer
from rich.console import Console

from hk_backend.config import ConfigError
from hk_backend.lab import options
from hk_backend.terminal import errors
from hk_backend.terminal.output import print_json, progress


class Sweep(Protocol):
    """The cases that a command's options describe."""

    def run(self, on_case: Callable[[str], object]) -> Iterator[Any]:
        """Yields a row for each case, with `error` and `as_json()`; failed cases have an error.

        `on_case` is called with what is done next.
        """


class TimedSweep(Sweep, Protocol):
    """A sweep that times each of its cases in several rounds."""

    @property
    def rounds(self) -> int: ...


PrintTable = Callable[[Console, Sequence[Any]], None]


def run(
    sweep: Sweep, environment: Mapping[str, object], print_table: PrintTable, as_json: bool
) -> NoReturn:
    """Runs a sweep, prints its conditions and its rows, and ends the command.

    Raises:
        typer.Exit: with code 1 if a row failed.
    """
    with progress.status("") as line:
        rows = list(sweep.run(line.update))
    if as_json:
        print_json(as_plain(environment, rows))
    else:
        console = Console()
        for name, value in environment.items():
            console.print(f"{name:12} {value}", highlight=False, soft_wrap=True)
        print_table(console, rows)
    raise typer.Exit(1 if any(row.error for row in rows) else 0)


def run_on_host(
    sweep: TimedSweep,
    print_table: PrintTable,
    threads: int,
    isa: options.Isa | None,
    as_json: bool,
) -> NoReturn:
    """Runs a sweep with the host kernels, under the conditions that the options ask for."""
    from hk_backend.devices import DeviceError
    from hk_backend.lab.bench import settings

    settings.limit_isa(isa)
    with errors.in_one_line(progress, ConfigError, DeviceError):
        settings.check_device()
    settings.use_threads(threads)
    run(sweep, settings.environment(sweep.rounds), print_table, as_json)


def as_plain(environment: Mapping[str, object], rows: Sequence[Any]) -> dict[str, object]:
    """The result of a benchmark as plain data."""
    return {"environment": dict(environment), "cases": [row.as_json() for row in rows]}
