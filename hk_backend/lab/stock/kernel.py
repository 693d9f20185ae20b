"""A kernel of either side: HK's, or the one of the engine that it replaces."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol, TypeVar

from hk_backend.lab.foreign.triton_driver import KernelFinding, TritonGpu
from hk_backend.lab.timing.model import Modelled

KEPT = 100_000
"""Findings to keep where some are tolerated: those must not hide the others."""

Of_contra = TypeVar("Of_contra", contravariant=True)
"""A batch of attention, or a linear layer."""


class Kernel(Protocol[Of_contra]):
    """The launches that compute one kind of case."""

    @property
    def name(self) -> str:
        """The engine and its kernel or backend."""

    def refuses(self, of: Of_contra) -> str:
        """Why it does not take a case; empty: it does."""

    def error(self, of: Of_contra) -> float:
        """The largest error of its result, over the largest error that a right result may have.

        It is executed with every check. Raises `RuntimeError` for a finding of the emulator.
        """

    def microseconds(self, of: Of_contra) -> float:
        """Modelled time of its launches, without the time between launches."""


def launch_apart(found: Modelled) -> float:
    """Microseconds from the first workgroup's begin to the last one's end."""
    return found.clocks / found.clock_ghz / 1e3


@contextmanager
def tolerating(gpu: TritonGpu, checks: Collection[str]) -> Iterator[None]:
    """Launches in this context may have findings of `checks`, whatever else is checked.

    Raises `KernelFinding` at the end for a finding of another check; without `checks` at once.
    """
    if not checks:
        yield
        return
    strict, kept, gpu.strict, gpu.gpu.max_findings = gpu.strict, gpu.gpu.max_findings, False, KEPT
    begin = len(gpu.launches)
    try:
        yield
    finally:
        gpu.strict, gpu.gpu.max_findings = strict, kept
    for ran in gpu.launches[begin:]:
        others = [finding for finding in ran.findings if finding.check not in checks]
        if others:
            raise KernelFinding(replace(ran, findings=others))
