"""Assumptions of a replay: what a thread trace does not tell.

A trace has no addresses. So these are assumed:

Lanes of a memory instruction lie side by side, and all 64 take part.

No LDS access has a bank conflict.

Loads inside the steady loop read what other workgroups read, too. The L2 has it as often as
`l2_hits` says. All other loads, and stores, are the workgroup's own.

A workgroup's own data lie in the Infinity Cache (`in_infinity_cache`), since a benchmark repeats
its launch, or in HBM.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hk_backend.lab.timing.hardware.dispatch import Dispatch, Line

if TYPE_CHECKING:
    from hk_backend import _emulator

LANES = 64
SECTOR = 64
"""Bytes that one look-up of the vector L1 serves."""
_WIDTH = re.compile(r"_[us]?(dwordx4|dwordx3|dwordx2|dword|short|byte)")
_BYTES = {"dwordx4": 16, "dwordx3": 12, "dwordx2": 8, "dword": 4, "short": 2, "byte": 1}
_MEMORY = ("buffer_", "global_", "flat_")
_NO_ACCESS = ("buffer_inv", "buffer_wbl2", "global_wb", "global_inv")
_BRANCHES = ("s_cbranch", "s_branch", "s_setpc", "s_swappc")

Loop = tuple[int, int]
"""First and last line of a loop in the listing."""


def in_infinity_cache(parameters: _emulator.TimingParameters) -> Mapping[str, float]:
    """Changes of parameters with which a workgroup's own data lie in the Infinity Cache."""
    return {
        "hbm": parameters["infinity_cache"],
        "hbm_latency": parameters["infinity_cache_latency"],
        "hbm_write_cost": 1.0,
    }


def accessed_bytes(line: Line) -> int:
    """Bytes of a lane that a vector memory instruction moves; 0 for any other instruction."""
    name = line.mnemonic
    if not name.startswith(_MEMORY) or name.startswith(_NO_ACCESS):
        return 0
    found = _WIDTH.search(name)
    return _BYTES[found[1]] if found else 4


def steady_loop(dispatch: Dispatch) -> Loop | None:
    """The loop of the backward jump over most instructions, counted as often as it was taken."""
    jumps: Counter[Loop] = Counter()
    for wave in dispatch.waves:
        lines = wave.steps["line"]
        back = lines[1:] <= lines[:-1]
        jumps.update(zip(lines[1:][back].tolist(), lines[:-1][back].tolist(), strict=True))
    if not jumps:
        return None
    first, last = max(jumps, key=lambda jump: _weight(jump, jumps[jump], len(dispatch.waves)))
    return first, last


def _weight(jump: Loop, times: int, waves: int) -> tuple[bool, int]:
    """A long jump taken once is no loop."""
    return times > waves, times * (jump[1] + 1 - jump[0])


def facts(lines: Sequence[Line], loop: Loop | None) -> NDArray[np.uint32]:
    """The replay's facts of each line: sectors touched, not in the L1, and shared."""
    found = np.zeros((len(lines), 3), np.uint32)
    for number, line in enumerate(lines):
        if line.is_label or not (size := accessed_bytes(line)):
            continue
        sectors = -(-size * LANES // SECTOR)
        load = "_load" in line.mnemonic
        shared = load and loop is not None and loop[0] <= number <= loop[1]
        found[number] = sectors, sectors, sectors if shared else 0
    return found


def is_branch(line: Line) -> bool:
    """Whether an instruction may jump."""
    return line.mnemonic.startswith(_BRANCHES)
