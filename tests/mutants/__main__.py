"""The command behind `make mutants`: which tests notice a fault.

    `make mutants`               runs every fault without a result of this commit; resumable.
    `make mutants ONLY=routing`  runs those with this in their room, key, file or name, again.
    `make mutants SLOW=1`        asks slow tests, proofs and engines about what survives.

Faults are written into copies of the committed tree. Results are in tests/mutants/results.txt.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import typer
from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.models import ROOT
from tests.mutants import fault as faults
from tests.mutants import results
from tests.mutants.fault import Fault
from tests.mutants.judge import Judge, commit
from tests.mutants.results import Result
from tests.mutants.tree import Tree

BUILD = ROOT / "build" / "mutants"


def main(
    only: str = typer.Option("", envvar="ONLY", help="A part of a room, key, file or name."),
    slow: bool = typer.Option(False, envvar="SLOW", help="Only what `make test` leaves out."),
    jobs: int = typer.Option(1, envvar="JOBS", help="Faults at a time; each needs a core."),
    sglang_python: str = typer.Option(sys.executable, help="Python of SGLang's environment."),
    native: str = typer.Option("", help="Folder of the objects that `make venv` has compiled."),
) -> None:
    """Run every fault that has no result of this commit, or those of ONLY."""
    console = Console(stderr=True)
    all_faults = faults.read()
    known, now = results.read(), commit()
    chosen = [each for each in all_faults if is_wanted(each, known, now, only, slow)]
    objects = Path(native) if native else next(ROOT.glob("build/temp.*"), ROOT / "build")
    if not chosen:
        console.print("every fault has a result of this commit")
    else:
        python = str(Path(sglang_python).absolute())  # copies of the tree are other folders
        trees = [Tree(BUILD / f"tree-{i}", python, objects) for i in range(max(jobs, 1))]
        run(chosen, [Judge(tree) for tree in trees], known, now, slow, console)
        for tree in trees:
            tree.close()
    print("\n".join(results.table(known[each.key] for each in all_faults if each.key in known)))


def is_wanted(fault: Fault, known: dict[str, Result], now: str, only: str, slow: bool) -> bool:
    words = (fault.room, fault.key, fault.file, fault.name)
    if not any(only in word for word in words):
        return False
    result = known.get(fault.key)
    if slow:
        return result is not None and result.outcome in ("survives", "record")
    return bool(only) or result is None or result.commit != now


def run(
    chosen: list[Fault],
    judges: list[Judge],
    known: dict[str, Result],
    now: str,
    slow: bool,
    console: Console,
) -> None:
    """Judge `chosen`, and write each result as it comes. A note follows a fault that was caught
    before."""
    free: SimpleQueue[Judge] = SimpleQueue()
    for judge in judges:
        free.put(judge)
    lock = FileLock(BUILD / "lock")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress, ThreadPoolExecutor(len(judges)) as pool:
        task = progress.add_task("faults", total=len(chosen))

        def one(fault: Fault) -> None:
            judge = free.get()
            try:
                before = known.get(fault.key)
                outcome, by = judge.judge(fault, slow, before.by if before else "")
            finally:
                free.put(judge)
            result = Result(outcome, now, judge.seconds, fault.room, fault.key, by)
            with lock:  # other processes write, too
                known.update(results.read())
                known[fault.key] = result
                results.write(known.values(), faults.read())
                worse = before and before.outcome == "test" and outcome != "test"
                note = "  caught before!" if worse else ""
                progress.console.print(f"{result.line()}{note}", highlight=False, soft_wrap=True)
                progress.advance(task)

        list(pool.map(one, chosen))


if __name__ == "__main__":
    typer.run(main)
