"""Counters of the case that runs: its launches, and its largest error."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any


@dataclass
class Measured:
    """Launches on the emulator, and the largest error in units of its bound, since `restart`."""

    launches: int = 0
    worst: float = 0.0

    def restart(self) -> None:
        self.launches, self.worst = 0, 0.0


MEASURED = Measured()


def note_error(in_bounds: float) -> None:
    """A case's largest error in units of what its test allows."""
    MEASURED.worst = max(MEASURED.worst, in_bounds)


def count_launches() -> None:
    """Make each launch on an emulated machine count."""
    from hk_backend import _emulator

    launch = _emulator.Machine.launch

    @functools.wraps(launch)
    def counted(machine: Any, *args: Any, **kwargs: Any) -> Any:
        MEASURED.launches += 1
        return launch(machine, *args, **kwargs)

    _emulator.Machine.launch = counted  # type: ignore[method-assign,assignment]
