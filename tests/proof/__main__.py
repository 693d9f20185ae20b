"""The command behind `make prove`: runs proofs that have no valid record.

    `make prove`                        runs what has none, longest first, on every core.
    `make prove --dry-run`              says which these are, and why, and runs nothing.
    `make prove ONLY=attention_window`  takes those with this in the name of the check, of the
                                        file of records or of the subject; `engine_` for engines.
    `make prove FRESH=1`                runs everything, from nothing.

An interrupted run can be resumed: each record is written when its check has passed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
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
from tests.proof.prover import GROUPS, Group, Prover
from tests.proof.records import Key, Record

LOG = Path("build")


def main(
    only: str = typer.Option(
        "", envvar="ONLY", help="A part of a check's, a file of records', or a subject's name."
    ),
    fresh: bool = typer.Option(False, envvar="FRESH", help="Also what has a valid record."),
    dry_run: bool = typer.Option(False, help="Say what would run, and run nothing."),
    sglang_python: str = typer.Option(sys.executable, help="Python of SGLang's environment."),
    group: str = typer.Option("", help=f"One of {', '.join(GROUPS)}."),
) -> None:
    """Run the proofs that have no valid record, and record what passed."""
    os.environ |= {plugin.VARIABLE: plugin.PROVE, plugin.ONLY: only, plugin.FRESH: "1" * fresh}
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if group:
        raise typer.Exit(not prove(GROUPS[group], dry_run))
    again = ["-m", "tests.proof", *(["--dry-run"] if dry_run else [])]
    passed = True
    for each in GROUPS.values():
        python = sglang_python if each.sglang else sys.executable
        command = [python, *again, "--group", each.name]
        passed &= not subprocess.run(command, check=False).returncode
    raise typer.Exit(not passed)


def prove(group: Group, dry_run: bool) -> bool:
    """Run the proofs of one group; whether all passed."""
    console = Console(stderr=True)
    known = {
        key: record
        for path in sorted(records.FOLDER.glob("*.txt"))
        if group.owns(path.stem)
        for key, record in records.read_file(path).items()
    }
    found = _collect(group, console)
    wanted = plugin.wanted_proofs(found, known)
    _say(group, found, wanted, known, console)
    if dry_run:
        return True
    records.keep(found, group.owns)
    if not wanted:
        return True
    by_check = proofs.mean_seconds(known)
    estimates = {each.key: proofs.seconds(each, known, by_check) for each in wanted}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    path = LOG / f"prove-{group.name}.log"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as log, Progress(*columns, console=console) as progress:
        prover = Prover(progress, estimates, usable_cores())
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            spread = ("-n", str(usable_cores()), *group.spread)
            status = pytest.main([*group.paths, "-q", *spread], plugins=[prover])
    console.print(prover.summary())
    if status != pytest.ExitCode.OK or prover.failed:
        console.print(f"what pytest said is in {path}")
        return False
    return True


def _collect(group: Group, console: Console) -> Mapping[Key, Proof]:
    """Collect every proof of the group."""
    collector = Collector()
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        status = pytest.main([*group.paths, "-q", "--collect-only"], plugins=[collector])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        console.print(f"collecting failed: run pytest --collect-only {' '.join(group.paths)}")
        raise typer.Exit(1)
    return {key: proof for key, proof in collector.found.items() if group.owns(proof.source)}


def _say(
    group: Group,
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
        console.print(f"{check}: {number}: {why}", highlight=False, soft_wrap=True)
    valid = len(found) - len(proofs.invalid(found, known))
    console.print(
        f"{group.name}: {len(found)} proofs, {valid} with a valid record, {len(wanted)} to run"
    )


class Collector:
    """Keeps the proofs that pytest has collected, before any is deselected."""

    found: Mapping[Key, Proof] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.found = proofs.proofs_of(items)


if __name__ == "__main__":
    typer.run(main)
