"""Assumptions of a replay: what a thread trace does not tell.

A trace has no addresses. So these are assumed:

Lanes of a memory instruction lie side by side, and all 64 take part. Behind matrix instructions a
lane that stores 8 or 12 bytes has a row of its own (`STORED_APART`).

No LDS access has a bank conflict, but for `ds_write2_b32`: it writes halves of a lane's 16 bytes,
so lanes lie 16 bytes apart (`WRITE2_CLOCKS`).

Loads inside the steady loop that go through the LDS read what other workgroups read, too. The L2
has it as often as `l2_hits` says. All other loads, and stores, are the workgroup's own: operands
that go straight to a matrix instruction are shared by workgroups on other XCDs only.

A benchmark repeats its launch, so its data lie in the nearest cache that holds all that it loads
(`resident`): the L2, the Infinity Cache, or none. Workgroups with matrix instructions share their
operands, so their bytes tell no size: these lie in the Infinity Cache.
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
L2_BYTES, INFINITY_CACHE_BYTES = 32 << 20, 256 << 20
"""Sizes of the device's caches, of all XCDs together (product pages)."""
INFINITY_CACHE_WRITE_COST = 2.3
"""Cost of a byte written to the Infinity Cache, in bytes read; chosen on the vector addition."""
UNLIMITED = 1e6
"""TB/s of a memory that is no limit."""
STORED_APART = 8
"""Bytes of a lane from which, up to 12, a store of matrix results has a row for each lane."""
WRITE2_CLOCKS = 4
"""Clocks of `ds_write2_b32` for one without conflicts: every lane's 4 bytes lie in one of 8 banks
of 32, not in any (traces: 16 clocks)."""
_VECTORS = re.compile(r"\bv(?:\[(\d+):(\d+)\]|(\d+)\b)")
_WIDTH = re.compile(r"_[us]?(dwordx4|dwordx3|dwordx2|dword|short|byte)")
_BYTES = {"dwordx4": 16, "dwordx3": 12, "dwordx2": 8, "dword": 4, "short": 2, "byte": 1}
_MEMORY = ("buffer_", "global_", "flat_")
_NO_ACCESS = ("buffer_inv", "buffer_wbl2", "global_wb", "global_inv")
_BRANCHES = ("s_cbranch", "s_branch", "s_setpc", "s_swappc")

Loop = tuple[int, int]
"""First and last line of a loop in the listing."""


def resident(dispatch: Dispatch, parameters: _emulator.TimingParameters) -> Mapping[str, float]:
    """Changes of parameters with which a workgroup's own data lie where they fit."""
    if _has_matrix(dispatch.lines):
        return in_infinity_cache(parameters)
    loaded = loaded_bytes(dispatch, int(parameters["compute_units"]))
    if loaded <= L2_BYTES:
        return in_l2(parameters)
    return in_infinity_cache(parameters) if loaded <= INFINITY_CACHE_BYTES else {}


def loaded_bytes(dispatch: Dispatch, compute_units: int) -> float:
    """Bytes that the dispatch loads, if all CUs load as much as the traced ones do."""
    sizes = np.array([0 if line.is_label or "_load" not in line.mnemonic else accessed_bytes(line)
                      for line in dispatch.lines])  # fmt: skip
    loaded = sum(int(sizes[wave.steps["line"]].sum()) for wave in dispatch.waves) * LANES
    return loaded / len(dispatch.engines) * compute_units


def in_l2(parameters: _emulator.TimingParameters) -> Mapping[str, float]:
    """Changes of parameters with which a workgroup's own data lie in the L2."""
    rate = parameters["l2"]
    return {
        "compute_unit_fabric": rate,
        "infinity_cache": UNLIMITED,
        "infinity_cache_latency": parameters["l2_latency"],
        "hbm": UNLIMITED,
        "hbm_latency": 0.0,
        "hbm_write_cost": 1.0,
    }


def in_infinity_cache(parameters: _emulator.TimingParameters) -> Mapping[str, float]:
    """Changes of parameters with which a workgroup's own data lie in the Infinity Cache.

    All CUs run in step, so none is ahead of its share.
    """
    return {
        "hbm": parameters["infinity_cache"],
        "hbm_latency": parameters["infinity_cache_latency"],
        "hbm_write_cost": INFINITY_CACHE_WRITE_COST,
        "hbm_burst": SECTOR,
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
    matrix = _has_matrix(lines)
    written = _written_to_lds(lines)
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
