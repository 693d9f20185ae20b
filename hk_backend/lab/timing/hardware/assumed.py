"""Assumptions of a replay: what a thread trace does not tell.

A trace has no addresses. So these are assumed:

Lanes of a memory instruction lie side by side, and all 64 take part. Behind matrix instructions a
lane that stores 8 or 12 bytes has a row of its own (`STORED_APART`).

No LDS access has a bank conflict, but for `ds_write2_b32`: it writes halves of a lane's 16 bytes,
so lanes lie 16 bytes apart (`WRITE2_CLOCKS`).

Loads inside the steady loop that go through the LDS read what other workgroups read, too. The L2
has it as often as `l2_hits` says. All other loads, and stores, are the workgroup's own: operands
that go straight to a matrix instruction are shared by workgroups on other XCDs only.

Scalar loads of one pointer touch a line of the scalar cache for each 64 bytes of their offsets.

`residence.py` has where a launch's own data lie.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hk_backend.lab.timing.hardware.dispatch import Dispatch, Line

LANES = 64
SECTOR = 64
"""Bytes that one look-up of the vector L1 serves."""
STORED_APART = 8
"""Bytes of a lane from which, up to 12, a store of matrix results has a row for each lane."""
WRITE2_CLOCKS = 4
"""Clocks of `ds_write2_b32` for one without conflicts: every lane's 4 bytes lie in one of 8 banks
of 32, not in any (traces: 16 clocks)."""
SCALAR_LINE = 64
"""Bytes of a line of the scalar cache (traces: others miss again)."""
_SCALAR_LOAD = re.compile(r"s_load_\w+ \S+, (?P<base>s\[\d+:\d+\]), (?P<offset>0x[0-9a-f]+|\d+)?")
_VECTORS = re.compile(r"\bv(?:\[(\d+):(\d+)\]|(\d+)\b)")
_WIDTH = re.compile(r"_[us]?(dwordx4|dwordx3|dwordx2|dword|short|byte)")
_BYTES = {"dwordx4": 16, "dwordx3": 12, "dwordx2": 8, "dword": 4, "short": 2, "byte": 1}
_MEMORY = ("buffer_", "global_", "flat_")
_NO_ACCESS = ("buffer_inv", "buffer_wbl2", "global_wb", "global_inv")
_BRANCHES = ("s_cbranch", "s_branch", "s_setpc", "s_swappc")

Loop = tuple[int, int]
"""First and last line of a loop in the listing."""


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
    """The replay's facts of each line: sectors touched, not in the L1, and shared.

    Scalar loads have the number of the scalar cache's line.
    """
    found = np.zeros((len(lines), 3), np.uint32)
    matrix = _has_matrix(lines)
    written = _written_to_lds(lines)
    for number, cached in _scalar_lines(lines).items():
        found[number, 0] = cached
    for number, line in enumerate(lines):
        if not line.is_label and line.mnemonic.startswith("ds_write2_b32"):
            found[number] = WRITE2_CLOCKS, 1, 0
            continue
        if line.is_label or not (size := accessed_bytes(line)):
            continue
        sectors = -(-size * LANES // SECTOR)
        load = "_load" in line.mnemonic
        apart = matrix and not load and STORED_APART <= size < 16
        shared = load and loop is not None and loop[0] <= number <= loop[1]
        shared = shared and (line.text.endswith(" lds") or _vectors(line)[0] in written)
        found[number] = LANES if apart else sectors, sectors, sectors if shared else 0
    return found


def _scalar_lines(lines: Sequence[Line]) -> dict[int, int]:
    """Number of the scalar cache's line that each scalar load reads, by line of the listing."""
    places: dict[tuple[str, int], int] = {}
    found: dict[int, int] = {}
    for number, line in enumerate(lines):
        if load := _SCALAR_LOAD.match(line.text):
            place = load["base"], int(load["offset"] or "0", 0) // SCALAR_LINE
            found[number] = places.setdefault(place, len(places))
    return found


def is_branch(line: Line) -> bool:
    """Whether an instruction may jump."""
    return line.mnemonic.startswith(_BRANCHES)


def _written_to_lds(lines: Sequence[Line]) -> set[int]:
    """Vector registers whose content instructions write to the LDS."""
    writes = (line for line in lines if not line.is_label and line.mnemonic.startswith("ds_write"))
    # the first register of a write is its address
    return {register for line in writes for register in _vectors(line)[1:]}


def _vectors(line: Line) -> list[int]:
    """The vector registers of an instruction's operands, in their order."""
    found: list[int] = []
    for first, last, alone in _VECTORS.findall(line.text):
        found += range(int(first), int(last) + 1) if first else [int(alone)]
    return found


def _has_matrix(lines: Sequence[Line]) -> bool:
    return any(not line.is_label and line.mnemonic.startswith("v_mfma") for line in lines)
