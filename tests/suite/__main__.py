"""Runs the suite: every part, whatever the others come to, then one summary of all.

    `python -m tests.suite`             runs all that is not marked slow, as `make test`.
    `python -m tests.suite --slow`      runs everything; an interrupted run can be resumed.
    `python -m tests.suite --part vllm` runs one part.
    `python -m tests.suite --quick`     runs what a change most likely breaks.
    `python -m tests.suite --isa avx2`  holds kernels, torch and engines to an instruction set.
    `python -m tests.suite --held`      runs a sample of that, where the processor has more.

$PYTEST_ARGS replaces what pytest is told to run. The exit status is 0 if no test failed and, for a
whole `make test`, the processor time was within the limit of tests/suite/cost.py.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hk_backend import machine
from hk_backend.lab.bench.isa import ISA_LIMITS
from tests.models import ROOT
from tests.suite import parts
from tests.suite.cost import Cost, emulator_speed
from tests.suite.held import limits, native_isa, problem
from tests.suite.parts import Part
from tests.suite.results import OUTCOMES, Results, read, summary, total
from tests.suite.session import Session

LOGS = ROOT / "build" / "tests"
SLOW_ROW = LOGS / "slow-run.md"
INTERRUPTED = 130


def main() -> int:
    options = arguments()
    if options.held and native_isa() == "avx2":
        print("This processor's own instruction set is avx2: there is nothing to hold to it.")
        return 0
    isa = "avx2" if options.held else options.isa
    if why := problem(isa):
        sys.exit(why)
    pytest_arguments = shlex.split(os.environ.get("PYTEST_ARGS", ""))
    chosen = chosen_parts(options, pytest_arguments)
    budgeted = chosen == chosen_parts(arguments([]), []) and isa is None
    speed = emulator_speed()
    folder = LOGS / (f"slow-{'-'.join(tested(ROOT))}-{isa}" if options.slow else "last")
    for old in LOGS.glob("slow-*/" if options.slow else "last"):
        if not (options.slow and old == folder):  # it will be resumed
            shutil.rmtree(old)
    session = Session(folder, options.sglang_python, limits(isa))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    came_through = session.run(chosen)
    found = [read(part.name, session.logs(part)) for part in chosen]
    if not came_through:
        print(f"interrupted{'; run the same command to resume from here' * options.slow}")
    elif options.slow:
        SLOW_ROW.write_text(row(found, isa) + "\n")
        shutil.rmtree(folder)
        print(f"for docs/testing.md, kept in {SLOW_ROW}:\n{SLOW_ROW.read_text()}")
    cost = Cost(found, min(speed, emulator_speed()) if budgeted else speed)
    print("", *cost.table(), *([cost.verdict()] if budgeted else []), "", sep="\n")
    print(summary(found), flush=True)
    if not came_through:
        return INTERRUPTED
    return int(any(part.failures for part in found) or (budgeted and cost.fails))


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse `words`, or the command line if None."""
    parser = argparse.ArgumentParser(prog="python -m tests.suite")
    known = [part.name for part in parts.ALL]
    parser.add_argument("--part", choices=known, help="only this one")
    parser.add_argument("--quick", action="store_true", help="what a change most likely breaks")
    parser.add_argument("--slow", action="store_true", help="with what is marked slow; resumable")
    parser.add_argument("--held", action="store_true", help="the sample that is held to AVX2")
    parser.add_argument("--isa", choices=ISA_LIMITS, help="hold everything to it")
    parser.add_argument("--sglang-python", default=sys.executable, help="of SGLang's environment")
    return parser.parse_args(words)


def chosen_parts(options: argparse.Namespace, pytest_arguments: list[str]) -> list[Part]:
    if options.quick:
        return [parts.QUICK]
    if options.held:
        return list(parts.HELD)
    chosen = [part for part in parts.ALL if options.part in (None, part.name)]
    if pytest_arguments:
        base = chosen[0] if options.part else Part("chosen", ())
        return [replace(base, arguments=tuple(pytest_arguments))]
    return chosen if options.slow else [part.only("-m", parts.NOT_SLOW) for part in chosen]


def tested(root: Path) -> tuple[str, str]:
    """The commit, `+` behind it where files differ from it; and git's hash of every file that it
    would add, changed and new ones included."""

    def git(*words: str, **environment: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.check_output(command, env=os.environ | environment, text=True).strip()

    with tempfile.TemporaryDirectory() as scratch:
        index = str(Path(scratch) / "index")
        git("add", "--all", GIT_INDEX_FILE=index)
        tree = git("write-tree", GIT_INDEX_FILE=index)
    commit = git("rev-parse", "--short", "HEAD")
    return commit + "+" * (tree != git("rev-parse", "HEAD^{tree}")), tree


def row(found: list[Results], isa: str | None) -> str:
    """A whole slow run as a row of Markdown, as docs/testing.md keeps the last one."""
    counts = total(found)
    cells = [
        tested(ROOT)[0],
        datetime.date.today().isoformat(),
        f"{machine.cpu_model()}, {machine.usable_cores()} cores",
        f"held to {isa}" if isa else native_isa(),
        *(str(counts[outcome]) for outcome in OUTCOMES),
        f"{sum(part.minutes for part in found):.0f}",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
