"""Times by the timing model, from which planners estimate a launch: the content of costs.json.

    python -m hk_backend.lab.timing.costs

writes that file; nothing else states a time of the model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

COSTS = Path(__file__).with_name("costs.json")
MOST_PARTIAL_BYTES = 64 << 20
"""Most bytes of partial results that a launch may leave in memory for another one, or for its last
workgroup, to join (devices/hip/workspace.py)."""


@dataclass(frozen=True)
class Cost:
    """Times of a kernel's workgroups, in microseconds. A step is one turn of the kernel's loop.

    Args:
        resident: workgroups that a CU holds at once.
        fixed: time of a workgroup before and after its steps.
        alone: time of a step in a workgroup that has a CU to itself.
        shared: time of a workgroup's step on a full CU, divided by the workgroups that share it.
        sum: time to add the partial sums of one split, which the last workgroup to arrive does.
    """

    resident: int
    fixed: float
    alone: float
    shared: float
    sum: float = 0.0


@dataclass(frozen=True)
class MergeCost:
    """Times of the kernel that joins the partial results of attention, in microseconds.

    Args:
        fixed: time of the kernel by itself.
        few_parts: time for as many parts as it loads at once.
        bytes_per_microsecond: bytes of partial results written and read.
    """

    fixed: float
    few_parts: float
    bytes_per_microsecond: float


@dataclass(frozen=True)
class DecodeCost:
    """Times of a decode kernel's workgroups, in microseconds.

    Args:
        fixed: time of a workgroup apart from its requests.
        begin: time to begin and end a request, or a part of one.
        alone: time of a tile of keys where memory is idle.
        shared: time of a tile on a full GPU, divided by the workgroups that share a CU.
        resident: workgroups of the kernel that a CU holds.
        crowded: how many times as long a workgroup takes on a CU full of others, where memory is
            idle.
        join: time to join the results of one level of a request's tree.
    """

    fixed: float
    begin: float
    alone: float
    shared: float
    resident: int
    crowded: float
    join: float

    def crowding(self, workgroups: int) -> float:
        """How many times as long each workgroup takes on a CU that works on `workgroups` at once.

        Kernels of other cache forms have this cost, too, and may have room for fewer.
        """
        return 1 + (self.crowded - 1) * (workgroups - 1) / max(self.resident - 1, 1)


@dataclass(frozen=True)
class Costs:
    """The timing model's knowledge of one arch.

    Args:
        launch_microseconds: time from one kernel's end to the start of the next one in its stream.
        read_ahead_bytes: bytes by which a CU's reads may run ahead of its share of the memory.
        read_bytes_per_microsecond: bytes that all CUs together read from memory.
        attention: costs by head size, then by rows of a workgroup; a step is a tile of keys.
        attention_merge: costs by head size.
        attention_decode: costs by bytes of a stored element, then by head size, then by rows.
        gemm: costs by the kernel's name; a step is one of its tile's depth.
    """

    launch_microseconds: float
    read_ahead_bytes: int
    read_bytes_per_microsecond: float
    attention: Mapping[int, Mapping[int, Cost]]
    attention_merge: Mapping[int, MergeCost]
    attention_decode: Mapping[int, Mapping[int, Mapping[int, DecodeCost]]]
    gemm: Mapping[str, Cost]


@cache
def costs(arch: str) -> Costs:
    """The costs of an arch. Raises `KeyError` for one without a table."""
    found: dict[str, Any] = json.loads(COSTS.read_text())[arch]
    attention, merge, gemm = (found.pop(of) for of in ("attention", "attention_merge", "gemm"))
    decode = found.pop("attention_decode")
    return Costs(
        **found,
        attention={
            int(head_size): {int(rows): Cost(**row) for rows, row in by_rows.items()}
            for head_size, by_rows in attention.items()
        },
        attention_merge={int(head_size): MergeCost(**row) for head_size, row in merge.items()},
        attention_decode={
            int(size): {
                int(head_size): {int(rows): DecodeCost(**row) for rows, row in by_rows.items()}
                for head_size, by_rows in by_size.items()
            }
            for size, by_size in decode.items()
        },
        gemm={
            kernel: Cost(**{name: value for name, value in row.items() if name != "code"})
            for kernel, row in gemm.items()
        },
    )


def of_nearest(numbers: Mapping[int, T], size: int) -> T:
    """The entry whose number is nearest to `size`."""
    return numbers[min(numbers, key=lambda known: abs(known - size))]
