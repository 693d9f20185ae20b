"""Errors of the clock on a traced dispatch: ends of waves, turns of the loop, where waves stall."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hk_backend.lab.timing.hardware.assumed import Loop, accessed_bytes, is_branch
from hk_backend.lab.timing.hardware.dispatch import Line
from hk_backend.lab.timing.hardware.replay import Beside, Clocks

ISSUE = 4
"""Clocks between two instructions of a wave that nothing delays."""
LEAST_TURNS = 3
"""Turns of the loop that a wave needs to be counted."""


@dataclass(frozen=True)
class Pair:
    """Clocks on hardware and by the model."""

    hardware: float
    model: float

    @property
    def error(self) -> float:
        """The model's excess, as a share of the hardware's clocks."""
        return self.model / self.hardware - 1 if self.hardware else 0.0


@dataclass(frozen=True)
class Errors:
    """The clock beside hardware, over all waves of a dispatch.

    Attributes:
        ends: from a wave's first instruction to its last, in clocks; the mean of all waves.
        end_errors: of each wave, as a share of the hardware's clocks.
        turn: clocks of a turn of the steady loop, the mean of all waves; None without a loop.
        before, after: clocks before and behind the loop; None without a loop.
        stalls: clocks in which a wave did not issue, by kind of the instruction that it waited at;
            the mean of all waves.
    """

    waves: int
    ends: Pair
    end_errors: Sequence[float]
    turn: Pair | None
    before: Pair | None
    after: Pair | None
    stalls: Mapping[str, Pair]

    @property
    def mean_absolute_end(self) -> float:
        """Mean absolute error of the waves' ends."""
        return float(np.abs(self.end_errors).mean())

    def as_json(self) -> dict[str, Any]:
        """The errors as plain data; clocks are hardware's and the model's."""
        return {**asdict(self), "mean_absolute_end": self.mean_absolute_end}


def errors(besides: Sequence[Beside], lines: Sequence[Line], loop: Loop | None) -> Errors:
    """Compare the waves of a replay. `loop`: its first and its last line."""
    kinds = [kind_of(line) for line in lines]
    turns, before, after = [], [], []
    for beside in besides:
        place = _loop_of(beside, loop) if loop else None
        if place is None:
            continue
        first, last, heads = place
        before.append(_clocks(beside, 0, first))
        after.append(_clocks(beside, last, -1))
        if len(heads) > LEAST_TURNS:
            whole = _clocks(beside, heads[0], heads[-1])
            turns.append(Pair(*(each / (len(heads) - 1) for each in (whole.hardware, whole.model))))
    ends = [_clocks(beside, 0, -1) for beside in besides]
    return Errors(
        len(besides),
        _mean(ends),
        [end.error for end in ends],
        _mean(turns) if turns else None,
        _mean(before) if before else None,
        _mean(after) if after else None,
        _stalls(besides, kinds),
    )


def kind_of(line: Line) -> str:
    """The kind of wait of a wave that does not yet issue this instruction."""
    name = "" if line.is_label else line.mnemonic
    if name == "s_waitcnt":
        loads, others = "vmcnt" in line.text, "lgkmcnt" in line.text
        return "both counters" if loads and others else "vmcnt" if loads else "lgkmcnt"
    if name in ("s_barrier", "s_nop"):
        return name
    if name.startswith(("v_mfma", "v_smfmac")):
        return "matrix"
    if name.startswith("v_"):
        return "vector"
    if name.startswith("ds_"):
        return "lds"
    if accessed_bytes(line) if name else 0:
        return "memory"
    return "branch" if name and is_branch(line) else "scalar"


def _loop_of(beside: Beside, loop: Loop) -> tuple[int, int, Clocks] | None:
    """The wave's first and last step in the loop, and the steps at its head; None: it skips it."""
    lines = beside.wave.steps["line"]
    inside = np.flatnonzero((lines >= loop[0]) & (lines <= loop[1]))
    if not len(inside):
        return None
    return int(inside[0]), int(inside[-1]), np.flatnonzero(lines == loop[0])


def _clocks(beside: Beside, first: int, last: int) -> Pair:
    return Pair(
        float(beside.hardware[last] - beside.hardware[first]),
        float(beside.model[last] - beside.model[first]),
    )


def _mean(pairs: Sequence[Pair]) -> Pair:
    return Pair(
        float(np.mean([pair.hardware for pair in pairs])),
        float(np.mean([pair.model for pair in pairs])),
    )


def _stalls(besides: Sequence[Beside], kinds: Sequence[str]) -> dict[str, Pair]:
    """Clocks beyond those of issuing, by the kind of the instruction behind them."""
    sums: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for beside in besides:
        names = np.array(kinds)[beside.wave.steps["line"][1:]]
        for clocks, into in zip((beside.hardware, beside.model), sums, strict=True):
            lost = np.maximum(np.diff(clocks) - ISSUE, 0)
            for name in np.unique(names):
                into[str(name)] += int(lost[names == name].sum())
    hardware, model = sums
    found = {
        name: Pair(hardware[name] / len(besides), model[name] / len(besides)) for name in hardware
    }
    return dict(sorted(found.items(), key=lambda each: -each[1].hardware))
