"""`hk-backend tune-kernels`: times the candidates of each problem, and keeps the fastest.

Each launch is saved at once, and problems with a saved launch are skipped: an interrupted run
continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hk_backend.kernels.catalogue import Catalogue
from hk_backend.kernels.gemm_operands import family
from hk_backend.kernels.gemm_plan import candidates
from hk_backend.lab.bench.gemm.timers import Problem, Timer
from hk_backend.measurements import folder
from hk_backend.measurements.launches import is_usable, weight_of
from hk_backend.measurements.machine import this_machine
from hk_backend.terms.measurements import MeasuredLaunch, Measurements


@dataclass(frozen=True)
class TunedProblem:
    """A problem with its fastest launch, or the error for which there is none.

    `planned`: timed microseconds of the planner's choice.
    """

    problem: Problem
    launch: MeasuredLaunch | None
    planned: float = 0.0
    error: str = ""

    def as_json(self) -> dict[str, object]:
        if self.launch is None:
            return {"problem": str(self.problem), "error": self.error}
        return {**self.launch.model_dump(), "planned_choice_microseconds": self.planned}


class Tune:
    """The problems that have no timed launch on this machine yet.

    Args:
        of_each: number of candidates that are timed: the fastest ones by the planner.
    """

    def __init__(
        self, problems: Sequence[Problem], kernels: Catalogue, timer: Timer, of_each: int
    ) -> None:
        self._kernels, self._timer, self._of_each = kernels, timer, of_each
        self._machine = this_machine(timer.name)
        self.path = folder.path_of(self._machine)
        kept = [each for each in folder.read(self._machine).launches if is_usable(each)]
        done = {(weight_of(each)[1:], each.m) for each in kept if each.source == timer.source}
        units = timer.compute_units
        self.problems = [
            each for each in problems if ((units, each.format, each.n, each.k), each.m) not in done
        ]
        self.kept = len(kept)

    def run(self) -> Iterator[TunedProblem]:
        """Time the problems, as many at once as the timer can; yields failures, too."""
        with ThreadPoolExecutor(self._timer.at_once) as pool:
            try:
                for found in pool.map(self._tuned, self.problems):
                    if found.launch:
                        folder.add(Measurements(machine=self._machine, launches=(found.launch,)))
                    yield found
            finally:
                pool.shutdown(cancel_futures=True)

    def _tuned(self, of: Problem) -> TunedProblem:
        units = self._timer.compute_units
        planned = sorted(
            candidates(family(self._kernels, of.format), of.m, of.n, of.k, units),
            key=lambda each: each.microseconds,
        )[: self._of_each]
        try:
            times = [self._timer.microseconds(each.entry, each.splits, of) for each in planned]
        except RuntimeError as error:
            return TunedProblem(of, None, error=str(error))
        best, time = min(zip(planned, times, strict=True), key=lambda pair: pair[1])
        launch = MeasuredLaunch(
            arch=self._timer.arch,
            compute_units=units,
            **of.format._asdict(),
            m=of.m,
            n=of.n,
            k=of.k,
            kernel=best.entry.name,
            splits=best.splits,
            microseconds=round(time, 3),
            source=self._timer.source,
            sha256=best.entry.sha256,
        )
        return TunedProblem(of, launch, round(times[0], 3))
