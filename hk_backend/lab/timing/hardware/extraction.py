"""Costs of instructions, extracted from thread traces: rows of counts, medians and quartiles.

    found = extracted([dispatch, ...])
    found.save(path)                    # a file for `hk-backend time --measured`

A row collects one quantity over all traced waves. Parameters of the model follow from rows
(`PARAMETERS`). A latency is that of a quiet machine: its row's low quartile or less.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import hk_backend
from hk_backend.lab.timing.hardware.assumed import accessed_bytes, is_branch
from hk_backend.lab.timing.hardware.dispatch import Dispatch, Line, Wave

Samples = dict[str, list[float]]
SHOWN_QUIET = 5
"""Percentile of a latency's samples that stands for a quiet machine."""
FEWEST = 20
"""Samples that a row needs for a parameter to follow from it."""
COUNTERS = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")
IMMEDIATE = 8
"""A wait of so few clocks did not wait: it tells no latency."""
SIMDS = 4
SOON = 32
"""Clocks within which a packed instruction is taken to have waited for a matrix one."""
MATRIX_CLOCKS = {"v_mfma_f32_32x32x16_bf16": 32, "v_mfma_f32_32x32x16_f16": 32,
                 "v_mfma_f32_16x16x32_bf16": 16, "v_mfma_f32_16x16x32_f16": 16}  # fmt: skip
"""Clocks of the matrix unit (product pages' peak rates)."""
PACKED = re.compile(r"v_pk_\w+_f32")
NO_UNIT = ("s_waitcnt", "s_barrier", "s_nop", "s_endpgm", "s_setprio", "s_sleep", "s_load")
TRANSCENDENTAL = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_")
WIDE = re.compile(r"v_(mul_lo_u32|mul_hi_[iu]32|mad_[iu]64_[iu]32)")


@dataclass(frozen=True)
class Row:
    """One quantity, in clocks."""

    count: int
    quiet: float
    """The fifth percentile."""
    low: float
    median: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Row:
        quiet, *quartiles = np.percentile(samples, [SHOWN_QUIET, 25, 50, 75]).tolist()
        return cls(len(samples), quiet, *quartiles)


Rows = Mapping[str, Row]
PARAMETERS: dict[str, tuple[str, Callable[[Row], float]]] = {
    "branch_taken": ("branch, taken", lambda row: row.median),
    "transcendental": ("transcendental, issue", lambda row: row.median),
    "vector_swap": ("swap, issue", lambda row: row.median),
    "vector_wide": ("wide vector, issue", lambda row: row.median),
    "matrix_issue": ("matrix, issue", lambda row: row.median),
    "matrix_scaled_issue": ("scaled matrix, issue", lambda row: row.median),
    # the instruction itself takes a slot of four clocks
    "lds_write_issue": ("ds_write_b128, issue", lambda row: (row.median - 4) / 4),
    # 64 lanes of 16 bytes pass in four clocks
    "lds_latency": ("ds_read_b128, latency", lambda row: row.quiet - 4),
    "scalar_latency": ("scalar load, latency", lambda row: row.quiet),
    "barrier_release": ("s_barrier, release", lambda row: row.median),
    "after_matrix": ("matrix, then vector or memory", lambda row: row.median),
    "memory_after_vector": ("vector, then memory", lambda row: row.median),
    "scalar_after_vector": ("vector result, then scalar", lambda row: row.median),
    "branch_after_scalar": ("scalar, then branch", lambda row: row.median),
    "packed_after_matrix": ("matrix end, then packed", lambda row: row.quiet),
}
"""Rows that the model's parameters follow from (csrc/emulator/timing/parameters.cpp)."""


@dataclass(frozen=True)
class Extracted:
    """Rows of several dispatches on one GPU.

    Attributes:
        sources: names of the traces.
    """

    arch: str
    sources: Sequence[str]
    rows: Rows

    @property
    def parameters(self) -> dict[str, float]:
        """The model's parameters that follow from rows of enough samples."""
        return {
            name: value(self.rows[row])
            for name, (row, value) in PARAMETERS.items()
            if row in self.rows and self.rows[row].count >= FEWEST
        }

    def as_json(self) -> dict[str, Any]:
        """The content of the file, which `hk-backend time --measured` reads."""
        parameters = {
            name: {"value": value, "certainty": "measured", "row": PARAMETERS[name][0]}
            for name, value in self.parameters.items()
        }
        return {
            "arch": self.arch,
            "device": "thread traces",
            "emulated": False,
            "version": hk_backend.__version__,
            "sources": list(self.sources),
            "parameters": parameters,
            "rows": {name: asdict(row) for name, row in self.rows.items()},
        }

    def save(self, path: Path) -> None:
        """Write the file. Raises `OSError`."""
        path.write_text(json.dumps(self.as_json(), indent=1) + "\n")


def extracted(dispatches: Iterable[tuple[str, Dispatch]], arch: str) -> Extracted:
    """Collect the rows of dispatches, each with a name that says where it is from."""
    samples: Samples = defaultdict(list)
    sources = []
    for source, dispatch in dispatches:
        sources.append(source)
        for wave in dispatch.waves:
            _issues(wave, dispatch.lines, samples)
            _followers(wave, dispatch.lines, samples)
            _waits(wave, dispatch.lines, samples)
        for engine in dispatch.engines:
            for simd in range(SIMDS):
                _packed(dispatch, engine, simd, samples)
            for waves in dispatch.workgroups(engine):
                _barriers(waves, dispatch.lines, samples)
    return Extracted(
        arch, sources, {name: Row.of(found) for name, found in sorted(samples.items())}
    )


def _issues(wave: Wave, lines: Sequence[Line], into: Samples) -> None:
    """Clocks for which an instruction keeps its wave from issuing the next one."""
    steps = wave.steps
    for step, following in pairwise(steps):
        line = lines[step["line"]]
        name = issue_row(line, taken=following["line"] != step["line"] + 1)
        if name:  # a jump's target comes later than the jump's own clocks say
            end = following["clock"] if is_branch(line) else step["clock"] + step["clocks"]
            into[name].append(float(end - step["clock"] - step["stall"]))


def issue_row(line: Line, *, taken: bool) -> str:
    """The row of an instruction's issue; empty if it has none."""
    name = line.mnemonic
    if is_branch(line):
        return "branch, taken" if taken else "branch, not taken"
    if name.startswith("ds_"):
        return f"{name}, issue"
    if name.startswith(("v_mfma", "v_smfmac")):
        return "scaled matrix, issue" if "_scale_" in name else "matrix, issue"
    if TRANSCENDENTAL.match(name):
        return "transcendental, issue"
    if name.startswith("v_") and "swap" in name:
        return "swap, issue"
    if WIDE.match(name):
        return "wide vector, issue"
    return "vector, issue" if name.startswith("v_") else ""


def _followers(wave: Wave, lines: Sequence[Line], into: Samples) -> None:
    """Clocks from an instruction's issue to that of the next one, by what both are."""
    issues = wave.issues.tolist()
    for (first, second), (issue, following) in zip(
        pairwise(wave.steps["line"].tolist()), pairwise(issues), strict=True
    ):
        if second == first + 1 and (row := follower_row(lines[first], lines[second])):
            into[row].append(float(following - issue))


def follower_row(first: Line, second: Line) -> str:
    """The row of an instruction that follows another; empty if it has none."""
    before, after = group_of(first), group_of(second)
    if before == "matrix" and after in ("vector", "memory"):
        return "matrix, then vector or memory"
    if before == "vector" and after == "memory":
        return "vector, then memory"
    if before == "scalar" and is_branch(second):
        return "scalar, then branch"
    to_scalar = first.mnemonic.startswith(("v_cmp_", "v_readfirstlane", "v_readlane"))
    return "vector result, then scalar" if to_scalar and after == "scalar" else ""


def group_of(line: Line) -> str:
    """The group of units that executes an instruction; empty for waits, jumps and the like."""
    name = line.mnemonic
    if name.startswith(("v_mfma", "v_smfmac")):
        return "matrix"
    if name.startswith("v_"):
        return "vector"
    if name.startswith("ds_") or accessed_bytes(line):
        return "memory"
    return "" if name.startswith(NO_UNIT) or is_branch(line) else "scalar"


def _packed(dispatch: Dispatch, engine: int, simd: int, into: Samples) -> None:
    """Clocks from the end of a SIMD's last matrix instruction to a packed float32 one of any wave.

    Packed instructions that come much later did not wait. Only matrix instructions of known length
    count.
    """
    own = [wave for wave in dispatch.waves if wave.engine == engine and wave.simd == simd]
    lengths = np.array([MATRIX_CLOCKS.get(line.mnemonic, 0) if not line.is_label else 0
                        for line in dispatch.lines])  # fmt: skip
    packed = np.array([bool(PACKED.match(line.text)) for line in dispatch.lines])
    if not own or not packed.any() or not lengths.any():
        return
    issues = np.concatenate([wave.issues for wave in own])
    steps = np.concatenate([wave.steps["line"] for wave in own])
    is_matrix = lengths[steps] > 0
    order = np.argsort(issues[is_matrix], kind="stable")
    begins, clocks = issues[is_matrix][order], lengths[steps][is_matrix][order]
    at = issues[packed[steps]]
    last = np.searchsorted(begins, at, side="left") - 1
    after = at[last >= 0] - begins[last[last >= 0]] - clocks[last[last >= 0]]
    into["matrix end, then packed"] += after[after <= SOON].astype(float).tolist()


def _waits(wave: Wave, lines: Sequence[Line], into: Samples) -> None:
    """Clocks from the issue of an instruction to the end of the wait that it ends."""
    waiting: dict[str, list[tuple[str, int]]] = {"vmcnt": [], "lgkmcnt": []}
    issues = wave.issues
    for step, issue in zip(wave.steps, issues, strict=True):
        line = lines[step["line"]]
        if counted := counter_of(line):
            counter, row = counted
            waiting[counter].append((row, int(issue)))
        found = COUNTERS.findall(line.text) if line.mnemonic == "s_waitcnt" else []
        for counter, left in found:
            queue = waiting[counter]
            ended = queue[: len(queue) - int(left)]
            waiting[counter] = queue[len(ended) :]
            alone = len(found) == 1 and len({row == SCALAR for row, _ in queue}) == 1
            if ended and alone and step["clocks"] > IMMEDIATE:
                row, begin = ended[-1]
                into[row].append(float(step["clock"] + step["clocks"] - begin))


SCALAR = "scalar load, latency"
"""Scalar loads return in any order beside those of the LDS: a wait for both tells neither."""


def counter_of(line: Line) -> tuple[str, str] | None:
    """The counter that an instruction counts in, and the row of its latency."""
    name = line.mnemonic
    if name.startswith(("s_load", "s_buffer_load")):
        return "lgkmcnt", SCALAR
    if name.startswith("ds_"):
        return "lgkmcnt", f"{name}, latency"
    if accessed_bytes(line):
        kind = "copy to the LDS" if line.text.endswith(" lds") else name
        return "vmcnt", f"{kind}, latency"
    return None


def _barriers(waves: Sequence[Wave], lines: Sequence[Line], into: Samples) -> None:
    """Clocks from the last wave's arrival at a barrier until each wave of the workgroup is on."""
    passed = [[step for step in wave.steps if lines[step["line"]].mnemonic == "s_barrier"]
              for wave in waves]  # fmt: skip
    if len(waves) < 2 or len({len(steps) for steps in passed}) != 1:
        return
    for steps in zip(*passed, strict=True):
        last = max(step["clock"] for step in steps)
        into["s_barrier, release"] += [
            float(step["clock"] + step["clocks"] - last) for step in steps
        ]
