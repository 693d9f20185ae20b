"""The clock's answer for a launch of any code object: its time, and the reasons for it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from hk_backend.lab.timing import calibration, model
from hk_backend.lab.timing.bound import Bound, bound
from hk_backend.lab.timing.busiest import units
from hk_backend.lab.timing.launch import Traced
from hk_backend.lab.timing.report import plain_workgroup
from hk_backend.lab.timing.tables import print_clocks
from hk_backend.lab.timing.workgroup import Workgroup, longest


@dataclass(frozen=True)
class Timed:
    """A launch's modelled time, what bounds it, and the workgroup that explains it."""

    modelled: model.Modelled
    workgroup: Workgroup
    bound: Bound

    @property
    def teraflops(self) -> float:
        """Rate of the executed matrix instructions, masked elements included; 0: unknown."""
        return self.modelled.flops_per_second / 1e12

    def as_json(self) -> dict[str, Any]:
        """The figures as plain data, with the names and units of `hk-backend time --json`."""
        modelled = self.modelled
        return {
            "modelled": True,
            "microseconds": float(modelled.microseconds),
            "stream_microseconds": float(modelled.stream_microseconds),
            "tflops": self.teraflops or None,
            "clock_ghz": float(modelled.clock_ghz),
            "clocks": modelled.clocks,
            "workgroups_per_cu": modelled.resident,
            "bound": asdict(self.bound),
            "units": units(modelled),
            "workgroup": plain_workgroup(self.workgroup),
        }

    def print(self, console: Console) -> None:
        """Print the figures for people."""
        rate = f", {self.teraflops:,.4g} TFLOP/s" if self.teraflops else ""
        console.print(f"{self.modelled.microseconds:,.4g} us{rate}", style="bold", highlight=False)
        console.print(calibration.statement(""), style="yellow")
        print_clocks(console, self.modelled, self.bound, self.workgroup)


def timed(traced: Traced) -> Timed:
    """Replay a traced launch, and explain its time."""
    modelled = model.time(traced)
    group = longest(traced, modelled)
    return Timed(modelled, group, bound(modelled, group.wave_clocks))
