"""Serves a scenario on an emulated GPU (lab/stock/vllm_engine.py), like e2e/runner.py.

The last worker of a result also counts the launches of kernels that are not HK's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock import vllm_engine
from tests.integration.hk_vllm.e2e import runner
from tests.integration.shared.e2e.scenario import Scenario, ScenarioResult, load, save

WITHOUT = " without "
"""A scenario's name may end with this and the name of a kernel, which is then never executed."""


@cache
def gpu() -> TritonGpu:
    """The emulated GPU of this process."""
    return vllm_engine.install("gfx950")


def prepare() -> None:
    gpu()
    runner.prepare()


def main(asked: Path, answered: Path) -> None:
    [scenario] = load(Scenario, asked)
    left_out = scenario.name.partition(WITHOUT)[2]
    run = gpu().run

    def run_others(kernel: Any, grid: Sequence[int], *rest: Any) -> None:
        if kernel.name != left_out:
            run(kernel, grid, *rest)

    gpu().run = run_others  # type: ignore[assignment, method-assign]
    runner.main(asked, answered)
    [result] = load(ScenarioResult, answered)
    save([with_launches(result, Counter(each.kernel for each in gpu().launches))], answered)


def with_launches(result: ScenarioResult, counts: Counter[str]) -> ScenarioResult:
    """The result, whose last worker has also launched `counts`."""
    if result.error:
        return result
    *rounds, last = result.rounds
    *workers, worker = last.workers
    worker = replace(worker, launches={**worker.launches, **counts})
    return replace(result, rounds=[*rounds, replace(last, workers=[*workers, worker])])
