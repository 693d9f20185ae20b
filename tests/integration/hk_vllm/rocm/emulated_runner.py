"""Serves a scenario on an emulated GPU (lab/stock/vllm_engine.py), like e2e/runner.py.

The last worker of a result also counts the launches of kernels that are not HK's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock import vllm_engine
from tests.integration.hk_vllm.e2e import runner
from tests.integration.shared.e2e.emulated import leave_out, with_launches
from tests.integration.shared.e2e.scenario import Scenario, ScenarioResult, load, save


@cache
def gpu() -> TritonGpu:
    """The emulated GPU of this process."""
    return vllm_engine.install("gfx950")


def prepare() -> None:
    gpu()
    runner.prepare()


def main(asked: Path, answered: Path) -> None:
    [scenario] = load(Scenario, asked)
    leave_out(gpu(), scenario.name)
    runner.main(asked, answered)
    [result] = load(ScenarioResult, answered)
    if not result.error:
        *rounds, last = result.rounds
        *workers, worker = last.workers
        worker = with_launches(worker, Counter(each.kernel for each in gpu().launches))
        result = replace(result, rounds=[*rounds, replace(last, workers=[*workers, worker])])
    save([result], answered)
