"""`hk-backend bench launch`."""

from __future__ import annotations

import os

import typer

from hk_backend import machine
from hk_backend.lab import options
from hk_backend.lab.commands import benchmark
from hk_backend.terminal.output import JsonFlag, progress


def command(rounds: options.Rounds = 31, as_json: JsonFlag = False) -> None:
    """Time the path from an engine's forward to a GPU kernel's launch, against an empty operator.

    No GPU is needed: the HIP library under it returns at once. Exit code 1 if an engine could not
    be measured.
    """
    from hk_backend.lab.bench.launch.measure import OverheadSweep, print_rows

    engines = tuple(
        title.lower()
        for title, distributions in machine.ENGINES.items()
        if machine.version_of(*distributions)
    )
    if not engines:
        progress.print("[red]no engine is installed: the launch path starts in its forward[/red]")
        raise typer.Exit(1)
    os.environ["HK_BACKEND"] = "1"  # every route, as an engine's own process has it
    benchmark.run_on_host(OverheadSweep(engines, rounds), print_rows, 1, None, as_json)
