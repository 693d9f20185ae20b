"""Writes the timing model's costs of the kernels, from which planners choose (kernels/costs.py).

    python -m hk_backend.lab.timing.costs [--arch gfx950]

`gemm_cost` models launches of two depths for each gemm kernel. Every CU has one workgroup, or as
many as fit. One more launch has its depth split. The cost follows from the modelled times. Costs of
attention and the rate of reads are fits over many shapes, which stay as the file has them
(tests/lab/timing/test_planned_attention.py holds the choices by them to the model).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from hk_backend.kernels.catalogue import catalogue
from hk_backend.kernels.costs import COSTS, Cost
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.gemm_plan import can_split
from hk_backend.lab.timing import model
from hk_backend.lab.timing.launch import trace
from hk_backend.lab.timing.workloads import gemm

UNITS = 256
"""Number of compute units of the modelled device."""
SHORT, LONG = 32, 96
"""Steps along the depth of a workgroup, in the short and in the long launch."""
SPLITS = 4


def gemm_cost(entry: KernelEntry) -> Cost:
    """Modelled cost of one gemm kernel, in microseconds.

    Raises `RuntimeError` if the emulator cannot execute the kernel to its end.
    """

    def modelled(workgroups: int, steps: int, splits: int = 1) -> model.Modelled:
        tiles = workgroups // splits
        # tiles one below the other share columns, so that memory does not limit the rate
        down = min(16, 1024 // entry.tile.rows, tiles)
        rows, columns = down * entry.tile.rows, tiles // down * entry.tile.columns
        shape = gemm.Shape(rows, columns, steps * splits * entry.tile.depth, splits)
        return model.time(trace(gemm.launch(entry, shape), threads=1))

    def microseconds(*arguments: int) -> float:
        found = modelled(*arguments)
        return found.microseconds - found.parameters["launch"]

    resident = modelled(16 * UNITS, SHORT).resident
    short, long = (microseconds(UNITS, steps) for steps in (SHORT, LONG))
    full_short, full = (microseconds(resident * UNITS, steps) for steps in (SHORT, LONG))
    alone, shared = (long - short) / (LONG - SHORT), (full - full_short) / (LONG - SHORT)
    summing = 0.0
    if can_split(entry, 1):
        summing = max(0.0, microseconds(UNITS, SHORT, SPLITS) - short) / SPLITS
    return Cost(
        resident=resident,
        fixed=round(short - SHORT * alone, 4),
        alone=round(alone, 5),
        shared=round(shared / resident, 5),
        sum=round(summing, 4),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    from hk_backend import _emulator

    parser = argparse.ArgumentParser(prog="python -m hk_backend.lab.timing.costs")
    parser.add_argument("--arch", default="gfx950")
    arch = parser.parse_args(argv).arch
    family = catalogue(arch).families["gemm"]
    found: dict[str, object] = {}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for entry, made in zip(family, pool.map(gemm_cost, family), strict=True):
            print(f"{len(found) + 1}/{len(family)} {entry.name}: {made}", file=sys.stderr)
            found[entry.name] = {"code": entry.code, **asdict(made)}
    parameters, table = _emulator.TimingParameters(arch), json.loads(COSTS.read_text())
    table[arch] |= {
        "launch_microseconds": parameters["dependent_gap"],
        "read_ahead_bytes": int(parameters["hbm_burst"]),
        "gemm": found,
    }
    COSTS.write_text(json.dumps(table, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
