"""The command behind `make prove`: runs checks of kernels that have no valid record.

    make prove                          what has no valid record, longest first, on every core
    make prove --dry-run                says which that are, and why, and runs nothing
    make prove ONLY=attention_window    those whose check, source or kernel has this in its name
    make prove FRESH=1                  everything, from nothing

An interrupted run goes on where it stopped: each record is written when its check has passed.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hk_backend.machine import usable_cores
from tests.proof import plugin, proofs, records
from tests.proof.proofs import Proof
from tests.proof.prover import Prover
from tests.proof.records import Key, Record

PROOFS = ("tests/kernels", "tests/devices/hip/test_self_check.py")
"""Where the tests with the marker lie."""
LOG = Path("build/prove.log")


def main(
    only: str = typer.Option(
        "", envvar="ONLY", help="A part of a check's, source's or kernel's name."
    ),
    fresh: bool = typer.Option(False, envvar="FRESH", help="Also what has a valid record."),
    dry_run: bool = typer.Option(False, help="Say what would run, and run nothing."),
) -> None:
    """Run the checks of kernels that have no valid record, and record what passed."""
    os.environ |= {plugin.VARIABLE: plugin.PROVE, plugin.ONLY: only, plugin.FRESH: "1" * fresh}
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    console = Console(stderr=True)
    known = records.read()
    found = _collect(console)
    wanted = plugin.wanted_proofs(found, known)
    _say(found, wanted, known, console)
    if dry_run:
        return
    records.keep(found)
    if not wanted:
        return
    by_check = proofs.mean_seconds(known)
    estimates = {each.key: proofs.seconds(each, known, by_check) for each in wanted}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("w") as log, Progress(*columns, console=console) as progress:
        prover = Prover(progress, estimates, usable_cores())
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            spread = ("-n", str(usable_cores()), "--dist", "load", "--maxschedchunk", "1")
            status = pytest.main([*PROOFS, "-q", *spread], plugins=[prover])
    console.print(prover.summary())
    if status != pytest.ExitCode.OK or prover.failed:
        console.print(f"what pytest said is in {LOG}")
        raise typer.Exit(1)


def _collect(console: Console) -> Mapping[Key, Proof]:
    """Every proof that there is."""
    collector = Collector()
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        status = pytest.main([*PROOFS, "-q", "--collect-only"], plugins=[collector])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        console.print(f"collecting failed: run pytest --collect-only {' '.join(PROOFS)}")
        raise typer.Exit(1)
    return collector.found


def _say(
    found: Mapping[Key, Proof],
    wanted: Sequence[Proof],
    known: Mapping[Key, Record],
    console: Console,
) -> None:
    """How many proofs of which check have to run, and why."""
    reasons = Counter(
        (each.key.check, each.why_invalid(known.get(each.key)) or "asked for") for each in wanted
    )
    for (check, why), number in sorted(reasons.items()):
        console.print(f"{check}: {number} kernels: {why}", highlight=False, soft_wrap=True)
    valid = len(found) - len(proofs.invalid(found, known))
    console.print(f"{len(found)} proofs, {valid} with a valid record, {len(wanted)} to run")


class Collector:
    """Keeps the proofs that pytest has collected, before any is deselected."""

    found: Mapping[Key, Proof] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.found = proofs.proofs_of(items)


if __name__ == "__main__":
    typer.run(main)
