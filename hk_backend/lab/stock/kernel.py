"""A kernel of either side: HK's, or the one of the engine that it replaces."""

from __future__ import annotations

from typing import Protocol, TypeVar

from hk_backend.lab.timing.model import Modelled

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
