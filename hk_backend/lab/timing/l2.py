"""Share of attention's keys that an XCD's L2 holds for its workgroups, by the grid's order.

Workgroups that run at once read operands, the keys of a head, from beginning to end.
One that reads an operand finds what another read shortly before. How shortly follows from the L2's
size and the number of operands in flight. Workgroups begin in step and fall out of it from round to
round; in the end each is somewhere else in its operand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hk_backend import _emulator


@dataclass(frozen=True)
class Operands:
    """The operand that each workgroup of a launch reads.

    Args:
        numbers: number of the operand.
        bytes: bytes that the workgroup reads of it, from its beginning on.
    """

    numbers: NDArray[np.int64]
    bytes: NDArray[np.float64]


def hit_rate(operands: Operands, resident: int, parameters: _emulator.TimingParameters) -> float:
    """Share of the operands' bytes that the L2s hold when workgroups read them.

    Args:
        resident: number of workgroups on a CU at once.
    """
    xcds = int(parameters["xcds"])
    together = max(int(parameters["compute_units"]) // xcds, 1) * resident
    hits = total = 0.0
    for xcd in range(xcds):
        numbers, sizes = operands.numbers[xcd::xcds], operands.bytes[xcd::xcds]
        for number, first in enumerate(range(0, len(numbers), together)):
            some = slice(first, first + together)
            hits += _hit_bytes(numbers[some], sizes[some], number + 1, parameters)
        total += float(sizes.sum())
    return hits / total if total else 0.0


def _hit_bytes(
    numbers: NDArray[np.int64],
    sizes: NDArray[np.float64],
    number: int,
    parameters: _emulator.TimingParameters,
) -> float:
    """Bytes that one XCD's workgroups of round `number` find in the L2."""
    _, which = np.unique(numbers, return_inverse=True)
    readers = np.bincount(which, sizes > 0)
    read = np.bincount(which, sizes)
    longest = np.zeros(len(read))
    np.maximum.at(longest, which, sizes)
    some = read > 0
    readers, read, longest = readers[some], read[some], longest[some]
    if not len(read):
        return 0.0
    held = parameters["l2_size"] * 1e6 * parameters["l2_kept"] / len(read)
    apart = longest * min(parameters["l2_drift"] * number, 1.0)
    near = np.minimum(held / np.maximum(apart, 1.0), 1.0)
    found = 1 - (1 - near) ** (readers - 1)
    return float((np.minimum(found, 1 - 1 / readers) * read).sum())
