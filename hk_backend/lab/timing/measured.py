"""Computes the timing model's parameters from measurements on a GPU, and keeps them in a file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import hk_backend
from hk_backend.lab.timing.microbenchmarks import ACCESS, REPEATS, MicrobenchmarkResult

Results = Mapping[str, MicrobenchmarkResult]
"""Measurements by the name of their row; a row is missing if the arch has no kernel for it."""
Value = Callable[[Results], float]
PASSES = 8
"""Passes, of 4 clocks each, of one bf16 matrix instruction with a 32 x 32 result."""
LARGEST = ("bf16_32x32x16", "bf16_32x32x8")
"""Names of the bf16 matrix instructions with a 32 x 32 result: of gfx950, then of gfx942."""


class MeasuredError(ValueError):
    """A file of measured parameters cannot be used; the message says why."""


def issue(found: Results) -> float:
    """Clocks to issue one instruction: the time of `s_nop 1` less that of `s_nop 0`."""
    return found["s_nop_1"].mean - found["s_nop_0"].mean


def loop(found: Results) -> float:
    """Clocks of the loop instructions around one step of 64 times `s_nop 0`."""
    return 64 * (found["s_nop_0"].mean - issue(found))


def bare(name: str) -> Value:
    """Clocks of one of a step's 64 repeats, without its share of the loop's own instructions."""
    return lambda found: found[name].mean - loop(found) / 64


def rate(name: str, width: int) -> Value:
    """Bytes per clock of one compute unit, by accesses of `width` bytes a lane.

    The slowest wave's clocks count, since a compute unit may serve some waves before others.
    """
    return lambda found: 64 * width * len(found[name].clocks) / max(found[name].clocks.values())


def terabytes(name: str) -> Value:
    """TB/s of all compute units together, by accesses of 16 bytes a lane."""

    def value(found: Results) -> float:
        row = found[name]
        step = REPEATS * ACCESS * len(row.clocks) * row.workgroups
        return step / row.microseconds / 1e6

    return value


def latency(name: str) -> Value:
    """Clocks from a load to the end of its wait.

    This is one repeat of a chain, less the issue of the wait and less its share of the loop.
    """
    return lambda found: found[name].mean - issue(found) - loop(found) / REPEATS


def largest_matrix(found: Results, row: str) -> MicrobenchmarkResult:
    """The measurement of `row`, named after the first of `LARGEST` that the arch has."""
    return next(found[row.format(name)] for name in LARGEST if row.format(name) in found)


def matrix(found: Results) -> float:
    return largest_matrix(found, "mfma_{}_independent").mean / (4 * PASSES)


def matrix_issue(found: Results) -> float:
    """Clocks by which a matrix instruction delays the vector instructions of another wave.

    This is the delay of one vector instruction, times the number that run beside a matrix one.
    """
    both = found["beside_both"].clocks
    delay = both[4] - found["beside_vector"].clocks[4]
    return delay * max(1.0, both[0] / both[4])


def matrix_forward(found: Results) -> float:
    """Clocks from the end of a matrix instruction to a vector instruction that reads its result.

    They include the wait states that the compiler inserts.
    """
    busy = 4 * PASSES * matrix(found) + issue(found)
    return found["mfma_then_vector"].mean - busy - loop(found) / REPEATS


def workgroup_start(found: Results) -> float:
    """Clocks to start a workgroup in the place of one that has ended.

    This is the period of successive workgroups, less the wait for arguments and less the loop.
    """
    row = found["workgroups_of_8"]
    period = row.microseconds * found["clock"].gigahertz * 1e3
    return period - row.alone - latency("scalar_latency")(found)


PARAMETERS: dict[str, Value] = {
    "clock": lambda found: found["clock"].gigahertz,
    "clock_idle": lambda found: found["clock_fma_f32"].gigahertz / found["clock"].gigahertz,
    "clock_loaded": lambda found: (
        largest_matrix(found, "clock_{}").gigahertz / found["clock"].gigahertz
    ),
    "launch": lambda found: found["launch"].call,
    "dependent_gap": lambda found: found["launch"].gap,
    "workgroup_start": workgroup_start,
    "issue": issue,
    "branch_taken": bare("branch"),
    "barrier_release": bare("barrier_2"),
    "vector": bare("fma_f32_independent"),
    "vector_wide": bare("fma_f64_independent"),
    "vector_swap": bare("swap_b32_independent"),
    "transcendental": bare("exp_f32_independent"),
    "matrix": matrix,
    "matrix_issue": matrix_issue,
    "matrix_forward": matrix_forward,
    "lds_read_b128": rate("lds_read_b128", 16),
    "lds_read_b64": rate("lds_read_b64", 8),
    "lds_read_b32": rate("lds_read_b32", 4),
    "lds_read_transposed": rate("lds_read_b64_transposed", 8),
    "lds_write": rate("lds_write_b128", 16),
    "lds_latency": latency("lds_latency"),
    "vector_memory": rate("l1_read", 16),
    "l1_latency": latency("l1_latency"),
    "l2": rate("l2_read", 16),
    "l2_latency": latency("l2_latency"),
    "compute_unit_fabric": rate("fabric_read", 16),
    "infinity_cache": terabytes("infinity_cache_read"),
    "infinity_cache_latency": latency("infinity_cache_latency"),
    "hbm": terabytes("hbm_read"),
    "hbm_write_cost": lambda found: terabytes("hbm_read")(found) / terabytes("hbm_write")(found),
    "hbm_latency": latency("hbm_latency"),
    "scalar_latency": latency("scalar_latency"),
}
"""Functions that compute the model's parameters, by name (csrc/emulator/timing/parameters.cpp).

Values have the units of that file."""


@dataclass(frozen=True)
class Measured:
    """Measurements of one GPU.

    Args:
        device: the driver's name of the GPU. On an emulated device clocks mean nothing.
    """

    arch: str
    device: str
    emulated: bool
    rows: Results

    @property
    def parameters(self) -> dict[str, float]:
        """The parameters that follow from the measured rows.

        A value that is not a positive number is left out: its row failed to measure it.
        """
        values = {}
        for name, value in PARAMETERS.items():
            try:
                found = value(self.rows)
            except (KeyError, StopIteration, ZeroDivisionError):
                continue  # the arch lacks a row's kernel, or a clock stood still
            if math.isfinite(found) and found > 0:
                values[name] = found
        return values

    def as_json(self) -> dict[str, Any]:
        """The content of the file: "measured" parameters, and the rows that they follow from."""
        parameters = {
            name: {"value": value, "certainty": "measured"}
            for name, value in self.parameters.items()
        }
        return {
            "arch": self.arch,
            "device": self.device,
            "emulated": self.emulated,
            "version": hk_backend.__version__,
            "parameters": parameters,
            "rows": {name: asdict(row) for name, row in self.rows.items()},
        }

    def save(self, path: Path) -> None:
        """Write the file. Raises `OSError`."""
        path.write_text(json.dumps(self.as_json(), indent=1) + "\n")


def read(path: Path, arch: str) -> dict[str, float]:
    """Read the parameters of a file, for the model of `arch`.

    Raises:
        MeasuredError: the file is missing, has another format, or is from another arch or from an
            emulated device.
    """
    try:
        data: Any = json.loads(path.read_text())
        values = {name: float(row["value"]) for name, row in data["parameters"].items()}
        of, emulated = data["arch"], data["emulated"]
    except OSError as error:
        raise MeasuredError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise MeasuredError(f"{path} is not a file of `hk-backend time --measure`: {why}") from None
    if of != arch:
        raise MeasuredError(f"{path} was measured on {of}, not on {arch}")
    if emulated:
        raise MeasuredError(f"{path} is of an emulated device: its clocks count instructions")
    return values
