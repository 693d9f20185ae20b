"""Latencies of a trace's quiet loads: few others of their CU can have delayed them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from hk_backend.lab.timing.hardware.assumed import accessed_bytes
from hk_backend.lab.timing.hardware.dispatch import Dispatch, Line, Wave

QUIET_CLOCKS, QUIET_LOADS = 300, 4
"""A load is quiet if its CU issued at most this many others in so many clocks before it."""
WAITED = 8
"""A wait of at most so many clocks did not wait: it shows the most that a latency can be."""
_COUNT = re.compile(r"s_waitcnt vmcnt\((\d+)\)$")


def quiet(dispatch: Dispatch, most: float) -> list[int]:
    """Clocks from the issue of quiet loads to the end of the wait that they end.

    A wait that did not wait counts below `most`: there it tells that the load took no longer.
    """
    lines = dispatch.lines
    memory = np.array([not line.is_label and accessed_bytes(line) > 0 for line in lines])
    found: list[int] = []
    for engine in dispatch.engines:
        waves = [wave for wave in dispatch.waves if wave.engine == engine]
        issues = np.sort(np.concatenate([w.issues[memory[w.steps["line"]]] for w in waves]))
        for wave in waves:
            for issue, latency, waited in _ended(wave, lines, memory):
                first, last = np.searchsorted(issues, [issue - QUIET_CLOCKS, issue + 1])
                if last - first - 1 <= QUIET_LOADS and (waited or latency < most):
                    found.append(latency)
    return found


def _ended(
    wave: Wave, lines: Sequence[Line], memory: NDArray[np.bool_]
) -> Iterator[tuple[int, int, bool]]:
    """The issue and the latency of each load that ends a wait, and whether the wave waited."""
    under_way: list[tuple[int, bool]] = []
    for step, issue in zip(wave.steps, wave.issues, strict=True):
        line = lines[step["line"]]
        if memory[step["line"]]:
            under_way.append((int(issue), "_load" in line.mnemonic))
        elif counted := _COUNT.match(line.text):
            done = under_way[: len(under_way) - int(counted[1])]
            under_way = under_way[len(done) :]
            if done and done[-1][1]:
                latency = int(step["clock"] + step["clocks"]) - done[-1][0]
                yield done[-1][0], latency, step["clocks"] > WAITED
