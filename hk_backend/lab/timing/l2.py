"""Share of attention's keys that an XCD's L2 holds for its workgroups, by the grid's order.

Workgroups that run at once read operands, the keys of a head, from beginning to end.
One that reads an operand finds what another read shortly before. How shortly follows from the L2's
size and the number of operands in flight. Workgroups begin in step and fall out of it from round to
round; in the end each is somewhere else in its operand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Operands:
    """Operands that each workgroup of a launch reads: arrays [workgroups, operands].

    Args:
        numbers: number of the operand. Those of different columns are different operands.
        bytes: bytes that the workgroup reads of it, from its beginning on.
    """

    numbers: NDArray[np.int64]
    bytes: NDArray[np.float64]


def hit_rate(operands: Operands, resident: int, parameters: Any) -> float:
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
    numbers: NDArray[np.int64], sizes: NDArray[np.float64], number: int, parameters: Any
) -> float:
    """Bytes that one XCD's workgroups of round `number` find in the L2."""
    readers, read, length = [], [], []
    for column in range(numbers.shape[1]):
        _, which = np.unique(numbers[:, column], return_inverse=True)
        readers.append(np.bincount(which, sizes[:, column] > 0))
        read.append(np.bincount(which, sizes[:, column]))
        most = np.zeros(len(readers[-1]))
        np.maximum.at(most, which, sizes[:, column])
        length.append(most)
    count, of_all, longest = (np.concatenate(each) for each in (readers, read, length))
    some = of_all > 0
    count, of_all, longest = count[some], of_all[some], longest[some]
    if not len(count):
        return 0.0
    held = parameters["l2_size"] * 1e6 * parameters["l2_kept"] / len(count)
    apart = longest * min(parameters["l2_drift"] * number, 1.0)
    near = np.minimum(held / np.maximum(apart, 1.0), 1.0)
    found = 1 - (1 - near) ** (count - 1)
    return float((np.minimum(found, 1 - 1 / count) * of_all).sum())
