"""Chooses the launch of a linear layer on a GPU: the fastest timed one, else the planner's.

    choice = timed_here("gfx950").choose(family, m, n, k, compute_units=256)

A timed launch applies to its own number of rows, and to fewer down to half as many.
Among several, the one with the fewest rows decides. A launch of another build of the kernels is
ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import NamedTuple

import torch

from hk_backend.config import get_config
from hk_backend.kernels.catalogue import Family, catalogue
from hk_backend.kernels.entry import CodeObjectError, KernelEntry
from hk_backend.kernels.gemm_choice import SAMPLED, planned
from hk_backend.kernels.gemm_operands import Operands, operands_of
from hk_backend.kernels.gemm_plan import Candidate, candidates, sum_bytes, tiles_of
from hk_backend.measurements import folder
from hk_backend.measurements.machine import this_machine
from hk_backend.terms.measurements import MEASURED, MeasuredLaunch, Measurements

logger = logging.getLogger(__name__)


class Weight(NamedTuple):
    """A weight `[n, k]` and the GPU that multiplies it."""

    arch: str
    compute_units: int
    format: Operands
    n: int
    k: int


class Launches:
    """Timed launches of the present kernels.

    Attributes:
        ignored: number of launches of another build, or of no kernel for their problem.
    """

    def __init__(self, lines: Iterable[MeasuredLaunch] = ()) -> None:
        self._lines: dict[Weight, list[MeasuredLaunch]] = {}
        self.ignored = 0
        for line in sorted(lines, key=lambda line: (line.m, line.source != MEASURED)):
            if is_usable(line):
                self._lines.setdefault(weight_of(line), []).append(line)
            else:
                self.ignored += 1

    @lru_cache(maxsize=4096)  # noqa: B019 (they live as long as the process)
    def choose(self, family: Family, m: int, n: int, k: int, compute_units: int) -> Candidate:
        """The launch for M rows.

        Args:
            family: one or more kernels of one format. If the timed kernel is missing from it,
                because it failed on this machine, the planner chooses.
        """
        line = self.at(_weight(family, n, k, compute_units), m)
        for entry in family:
            if line is not None and entry.name == line.kernel:
                return Candidate(entry, line.splits, line.microseconds, line.source)
        return planned(family, m, n, k, compute_units)

    @lru_cache(maxsize=256)  # noqa: B019
    def most_sum_bytes(self, family: Family, n: int, k: int, compute_units: int) -> int:
        """Most bytes of sums that splits leave in memory, for any considered number of rows.

        Considered are the numbers in `SAMPLED` and those of timed launches.
        """
        listed = self.of(_weight(family, n, k, compute_units))
        rows = {*SAMPLED, *(line.m for line in listed)}
        chosen = ((m, self.choose(family, m, n, k, compute_units)) for m in rows)
        return max(sum_bytes(of.entry, tiles_of(of.entry, m, n), of.splits) for m, of in chosen)

    def of(self, weight: Weight) -> list[MeasuredLaunch]:
        """The timed launches of one weight, ascending in rows."""
        return self._lines.get(weight, [])

    def at(self, weight: Weight, m: int) -> MeasuredLaunch | None:
        """The timed launch that applies to M rows, if there is one."""
        return next((line for line in self.of(weight) if m <= line.m <= 2 * m), None)


def timed_here(arch: str) -> Launches:
    """The launches that were timed on the GPU of this process, real or emulated."""
    emulated = get_config().device.startswith("emulated") or not torch.cuda.is_available()
    return timed_on(f"{'emulated' if emulated else 'hip'}:{arch}")


@cache
def timed_on(device: str) -> Launches:
    """The launches that were timed on a device.

    Launches in the file that HK_EVIDENCE names come before those of the folder. The log says how
    many are ignored.
    """
    found = folder.read(this_machine(device))
    named = get_config().evidence
    if isinstance(named, Measurements):
        found = found.merged(named)
    launches = Launches(found.launches)
    if launches.ignored:
        logger.warning(
            "hk_backend: %d timed launches are of another build of the kernels and ignored: "
            "hk-backend tune-kernels times them again",
            launches.ignored,
        )
    return launches


def is_usable(line: MeasuredLaunch) -> bool:
    """Whether the timed kernel still exists unchanged and supports the timed launch."""
    entry = kernel_of(line)
    if entry is None or operands_of(entry) != weight_of(line).format:
        return False
    found = candidates((entry,), line.m, line.n, line.k, line.compute_units)
    return line.splits in [candidate.splits for candidate in found]


def kernel_of(line: MeasuredLaunch) -> KernelEntry | None:
    """The kernel of a timed launch, if its code object is the one that was timed."""
    try:
        family = catalogue(line.arch).families.get("gemm", ())
    except CodeObjectError:  # the arch has no kernels
        return None
    timed = line.kernel, line.sha256
    return next((entry for entry in family if (entry.name, entry.sha256) == timed), None)


def weight_of(line: MeasuredLaunch) -> Weight:
    """The weight of a timed launch, and its GPU."""
    format = Operands(line.activations, line.weights, line.scales)
    return Weight(line.arch, line.compute_units, format, line.n, line.k)


def _weight(family: Family, n: int, k: int, compute_units: int) -> Weight:
    return Weight(family[0].arch, compute_units, operands_of(family[0]), n, k)
