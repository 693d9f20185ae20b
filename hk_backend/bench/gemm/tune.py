"""`hk-backend tune`: times the candidates of each problem, and writes the fastest into a file.

A line is written as soon as it is known, and a problem that the file has is left out: an
interrupted run goes on where it stopped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from hk_backend.bench.gemm.timers import Problem, Timer
from hk_backend.kernels.catalogue import Catalogue
from hk_backend.kernels.gemm_formats import family
from hk_backend.kernels.gemm_plan import candidates
from hk_backend.kernels.tuning import Tuned, Weight, as_fields, kernel_of, read


@dataclass(frozen=True)
class Found:
    """A problem, and its line or why there is none; `planned`: microseconds of what the planner
    would have chosen."""

    problem: Problem
    line: Tuned | None
    planned: float = 0.0
    error: str = ""


class Tune:
    """The problems that `path` does not have yet.

    Args:
        of_each: candidates that are timed, those that the planner thinks best.

    Raises:
        TuningError: the file is there, and is none.
        OSError: it cannot be read or written.
    """

    def __init__(
        self,
        path: Path,
        problems: Sequence[Problem],
        kernels: Catalogue,
        timer: Timer,
        of_each: int,
    ) -> None:
        self._path, self._kernels, self._timer, self._of_each = path, kernels, timer, of_each
        kept = _kept(path)
        done = {(line.weight, line.m) for line in kept if line.source == timer.source}
        self.problems = [each for each in problems if (self._weight(each), each.m) not in done]
        self.kept = len(kept)

    def run(self) -> Iterator[Found]:
        """Time them, as many at once as the timer can; what fails is found, not raised."""
        with ThreadPoolExecutor(self._timer.at_once) as pool, self._path.open("a") as file:
            try:
                for found in pool.map(self._tuned, self.problems):
                    if found.line:
                        file.write(_as_text(found.line))
                        file.flush()
                    yield found
            finally:
                pool.shutdown(cancel_futures=True)

    def _weight(self, of: Problem) -> Weight:
        return Weight(self._timer.arch, self._timer.compute_units, of.format, of.n, of.k)

    def _tuned(self, of: Problem) -> Found:
        units = self._timer.compute_units
        planned = sorted(
            candidates(family(self._kernels, of.format), of.m, of.n, of.k, units),
            key=lambda each: each.microseconds,
        )[: self._of_each]
        try:
            times = [self._timer.microseconds(each.entry, each.splits, of) for each in planned]
        except RuntimeError as error:
            return Found(of, None, error=str(error))
        best, time = min(zip(planned, times, strict=True), key=lambda pair: pair[1])
        line = Tuned(
            self._timer.arch,
            units,
            *of.format,
            *(of.m, of.n, of.k),
            best.entry.name,
            best.splits,
            round(time, 3),
            self._timer.source,
            best.entry.sha256,
            self._timer.device,
        )
        stock = self._timer.stock(of)
        if stock is not None:
            line = replace(line, stock=stock[0], stock_microseconds=round(stock[1], 3))
        return Found(of, line, round(times[0], 3))


def _kept(path: Path) -> list[Tuned]:
    """The lines of a file that are of the present kernels; the others are taken out of it, and what
    an interrupted run has left of its last one."""
    if not path.exists():
        return []
    text = path.read_bytes()
    whole = text.rfind(b"\n") + 1
    if whole < len(text):
        os.truncate(path, whole)
    lines = list(read(path))
    kept = [line for line in lines if kernel_of(line)]
    if len(kept) < len(lines):
        beside = path.with_name(f"{path.name}.new")
        beside.write_text("".join(map(_as_text, kept)))
        beside.replace(path)
    return kept


def _as_text(line: Tuned) -> str:
    return json.dumps(as_fields(line)) + "\n"
