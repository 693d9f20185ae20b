"""A file of times, measured or modelled, that decides before the planner does (`HK_TUNING`).

JSON lines, one launch each, as `hk-backend tune` writes them:

    {"arch": "gfx950", "compute_units": 256, "activations": "e4m3", "weights": "e4m3",
     "scales": "vectors", "m": 16, "n": 6144, "k": 4096, "kernel": "gemm_fp8_deep_32x32",
     "splits": 2, "microseconds": 12.5, "source": "measured",
     "device": "AMD Instinct MI355X", "sha256": "..."}

A line holds for `m` rows and for fewer, down to half as many; of several lines that hold the one
with the fewest rows decides, and of the same rows a measured one. Other rows are the planner's. A
line of another build of the kernels, by the sha256 of the code object, is ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hk_backend.kernels.catalogue import catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.gemm_formats import Format, format_of
from hk_backend.kernels.gemm_plan import candidates
from hk_backend.kernels.tuning_fields import MEASURED, TuningError, checked

logger = logging.getLogger(__name__)


class Weight(NamedTuple):
    """What a line's rows are multiplied by, and where."""

    arch: str
    compute_units: int
    format: Format
    n: int
    k: int


@dataclass(frozen=True)
class Tuned:
    """One line.

    Args:
        microseconds: of the launch in a stream, behind another one.
        source: "measured", on `device` (as its driver calls it), or "modelled".
        sha256: of the code object with the kernel.
        stock: what the engine calls by itself, if it was measured there too;
            `stock_microseconds`: what that took.
    """

    arch: str
    compute_units: int
    activations: str
    weights: str
    scales: str
    m: int
    n: int
    k: int
    kernel: str
    splits: int
    microseconds: float
    source: str
    sha256: str
    device: str = ""
    stock: str = ""
    stock_microseconds: float = 0.0

    @property
    def format(self) -> Format:
        return Format(self.activations, self.weights, self.scales)

    @property
    def weight(self) -> Weight:
        return Weight(self.arch, self.compute_units, self.format, self.n, self.k)


class Tuning:
    """The lines that are of the present kernels, by weight and in the order of M; `ignored`: how
    many are not."""

    def __init__(self, lines: Iterable[Tuned] = ()) -> None:
        self.lines: dict[Weight, list[Tuned]] = {}
        self.ignored = 0
        for line in sorted(lines, key=lambda line: (line.m, line.source != MEASURED)):
            if kernel_of(line) is None:
                self.ignored += 1
            else:
                self.lines.setdefault(line.weight, []).append(line)

    def at(self, weight: Weight, m: int, source: str = "") -> Tuned | None:
        """The line that decides for M rows, if one does; `source`: only lines of this one."""
        held = (line for line in self.lines.get(weight, ()) if m <= line.m <= 2 * m)
        return next((line for line in held if source in ("", line.source)), None)


EMPTY = Tuning()
"""Of no file: the planner decides."""


@cache
def load(path: Path) -> Tuning:
    """A whole file; one line of the log says how many of its lines are ignored.

    Raises `TuningError`.
    """
    tuning = Tuning(read(path))
    if tuning.ignored:
        logger.warning(
            "hk_backend: %s: %d lines are of another build of the kernels and ignored: "
            "hk-backend tune writes them again",
            path,
            tuning.ignored,
        )
    return tuning


def read(path: Path) -> Iterator[Tuned]:
    """The lines of a file, each checked.

    Raises `TuningError`: the line, the field, its value, and what is valid.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise TuningError(f"{path}: {error.strerror}") from None
    seen: dict[tuple[object, ...], int] = {}
    for number, line in enumerate(lines, 1):
        try:
            tuned = parse(line)
            same = seen.setdefault((tuned.weight, tuned.m, tuned.source, tuned.sha256), number)
            if same != number:
                raise TuningError(f"the same launch as line {same}; valid: each once")
        except TuningError as error:
            raise TuningError(f"{path}, line {number}: {error}") from None
        yield tuned


def parse(line: bytes) -> Tuned:
    """One line. Raises `TuningError`: the field, its value, and what is valid."""
    tuned = Tuned(**checked(line))
    entry = kernel_of(tuned)
    if entry is None:
        return tuned
    of = format_of(entry)
    if of != tuned.format:
        raise TuningError(f"kernel = {tuned.kernel!r} is of {', '.join(of)}; valid: one of its own")
    found = candidates((entry,), tuned.m, tuned.n, tuned.k, tuned.compute_units)
    splits = [candidate.splits for candidate in found]
    if tuned.splits not in splits:
        there = ", ".join(map(str, splits))
        raise TuningError(f"splits = {tuned.splits}; valid, with these sizes: {there}")
    return tuned


def kernel_of(line: Tuned) -> KernelEntry | None:
    """The kernel, if the code that was timed is the present one."""
    family = catalogue(line.arch).families.get("gemm", ())
    named = (entry for entry in family if entry.name == line.kernel)
    return next((entry for entry in named if entry.sha256 == line.sha256), None)


def as_fields(line: Tuned) -> dict[str, object]:
    """What is written, in the order of the fields: those that say nothing are left out."""
    return {name: value for name, value in asdict(line).items() if value not in ("", 0.0)}
