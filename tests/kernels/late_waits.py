"""Mutants of a code object whose waits are moved behind the next barrier.

The wave still waits for its own operations; only other waves, which take them for done at the
barrier, can notice. `mutants` of tests/kernels/mutants.py does this to the first pair alone.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence

from hk_backend import _emulator
from tests.kernels.mutants import BARRIER, COUNTERS, WAITCNT, Mutant
from tests.kernels.outstanding import BRANCH, most_outstanding

KNOWS_ITS_PLACE = re.compile(r"s_c?branch|s_getpc|s_setpc|s_swappc|s_call|s_endpgm")
"""Instructions that no mutant moves."""
Code = Sequence[tuple[int, str]]


def late_waits(text: bytes, arch: str, begin: int, end: int) -> Iterator[Mutant]:
    """The mutants of the instructions from byte `begin` to `end` of a .text section.

    The words between a wait and its barrier move forward by one. A wait stays if a path enters or
    leaves between the two, if another wait before the barrier waits for as much, or if no path
    reaches it with more operations than it allows (tests/kernels/outstanding.py).
    """
    code = [(begin + place, line) for place, line in _emulator.disassemble(text[begin:end], arch)]
    outstanding = most_outstanding(text, arch, begin, end)
    targets = _targets(code)
    for place, (pc, line) in enumerate(code):
        word = _word(text, pc)
        if word >> 16 != WAITCNT or pc not in outstanding:
            continue
        waited = {counter.name: counter.get(word & 0xFFFF) for counter in COUNTERS}
        left = {name: value for name, value in waited.items() if outstanding[pc][name] > value}
        barrier = _barrier(text, code[place + 1 :], left, targets)
        if barrier is not None:
            moved = [(at, _word(text, at + 4)) for at in range(pc, barrier, 4)]
            yield Mutant(barrier, (*moved, (barrier, word)), f"{line} after its barrier")


def _barrier(text: bytes, code: Code, left: dict[str, int], targets: set[int]) -> int | None:
    """The place of the barrier before which nothing else waits for what is `left` in the counters;
    None if there is none in one piece with the wait."""
    for pc, line in code:
        word = _word(text, pc)
        if not left or pc in targets or KNOWS_ITS_PLACE.match(line):
            return None
        if word >> 16 == BARRIER:
            return pc
        if word >> 16 == WAITCNT:
            also = {counter.name: counter.get(word & 0xFFFF) for counter in COUNTERS}
            left = {name: value for name, value in left.items() if also[name] > value}
    return None


def _targets(code: Code) -> set[int]:
    """The places to which branches lead."""
    found = set()
    for pc, line in code:
        if branch := BRANCH.match(line):
            words = int(branch[2])
            found.add(pc + 4 + 4 * (words - (words >> 15 << 16)))
    return found


def _word(text: bytes, pc: int) -> int:
    (word,) = struct.unpack_from("<I", text, pc)
    return int(word)
