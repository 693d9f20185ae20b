"""Engines whose own Triton kernels run on an emulated GPU, with HK beside them or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hk_backend.lab.foreign.triton_driver import TritonGpu
from tests.integration.shared.e2e.scenario import Worker

WITHOUT = " without "
"""A scenario's name may end with this and the name of a kernel, which is then never executed."""


def leave_out(gpu: TritonGpu, scenario: str) -> None:
    """Execute every kernel but the one that the scenario's name excludes."""
    left_out = scenario.partition(WITHOUT)[2]
    run = gpu.run

    def run_others(kernel: Any, grid: Sequence[int], *rest: Any) -> None:
        if kernel.name != left_out:
            run(kernel, grid, *rest)

    gpu.run = run_others  # type: ignore[assignment, method-assign]


def with_launches(worker: Worker, counts: Mapping[str, int]) -> Worker:
    """The worker, which has also launched `counts`."""
    return replace(worker, launches={**worker.launches, **counts})
