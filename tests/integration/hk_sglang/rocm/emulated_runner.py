"""Serves a scenario on an emulated GPU (lab/stock/sglang_engine.py), like e2e/runner.py.

The first rank's worker also counts the launches of kernels that are not HK's.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock import sglang_engine
from tests.integration.hk_sglang.e2e import runner
from tests.integration.shared.e2e.emulated import leave_out, with_launches
from tests.integration.shared.e2e.scenario import Batch, Scenario, Worker, load

look = runner.look


@cache
def gpu() -> TritonGpu:
    """The emulated GPU of this process, which its forks inherit."""
    return sglang_engine.install("gfx950")


def prepare() -> None:
    gpu()
    runner.prepare()


def main(asked: Path, answered: Path) -> None:
    [scenario] = load(Scenario, asked)
    leave_out(gpu(), scenario.name)
    runner.look = look_at_both
    runner.main(asked, answered)


def look_at_both(engine: Any, seen: Path) -> tuple[list[Worker], list[Batch]]:
    (first, *others), batches = look(engine, seen)
    return [with_launches(first, sglang_engine.launches(engine)), *others], batches
