"""Attention over whole keys, and over parts of them before their merge."""

from __future__ import annotations

from hk_backend.kernels import attention_plan
from hk_backend.kernels.catalogue import Family
from hk_backend.kernels.entry import KernelEntry
from hk_backend.lab.timing.calibration import MATRIX
from hk_backend.lab.timing.family import ModelledFamily
from hk_backend.lab.timing.workloads.attention_prefill.launch import launch
from hk_backend.lab.timing.workloads.attention_prefill.parse import SIZES, parse
from hk_backend.lab.timing.workloads.attention_prefill.shape import (
    Shape,
    launch_sizes,
    shapes_of,
    small,
)

__all__ = ["FAMILY", "Shape", "launch", "launch_sizes", "small"]


def serving(alternatives: Family, shape: Shape, compute_units: int) -> tuple[KernelEntry, Shape]:
    """The kernel whose number of rows the planner chooses."""
    sizes = {each.tile.rows: each for each in alternatives}
    of = launch_sizes(alternatives[0], shape)
    return sizes[attention_plan.choose(of, compute_units, sizes, parts=False).rows], shape


FAMILY = ModelledFamily(launch, small, SIZES, parse, shapes_of, serving, MATRIX)
