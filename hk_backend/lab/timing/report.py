"""All that `hk-backend time` reports about a launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hk_backend.lab.timing import model
from hk_backend.lab.timing.bound import Bound, Limits, bound, limits
from hk_backend.lab.timing.busiest import units
from hk_backend.lab.timing.calibration import error_of
from hk_backend.lab.timing.launch import Traced, trace
from hk_backend.lab.timing.sensitivity import Effect, effects
from hk_backend.lab.timing.shapes import Workload
from hk_backend.lab.timing.workgroup import Workgroup, longest

Say = Callable[[str], object]
"""Function that gets a message about what is being done."""


@dataclass(frozen=True)
class Report:
    """A launch's modelled figures, and the reasons for its time."""

    workload: Workload
    changes: Mapping[str, float]
    """Values of the model's parameters that the user set."""
    traced: Traced
    modelled: model.Modelled
    workgroup: Workgroup
    limits: Limits
    bound: Bound
    effects: Sequence[Effect] | None
    """Effects of parameters that are not published; None: the caller did not ask for them."""

    def as_json(self) -> dict[str, Any]:
        """The report as plain data.

        Times are in microseconds, rates per second, shares from 0 to 1. Clocks are a CU's; in
        stalls and lines they are the average wave's.
        """
        modelled, group, limit = self.modelled, self.workgroup, self.limits
        return {
            "kernel": self.workload.entry.name,
            "arch": modelled.arch,
            "shape": self.workload.text,
            "set": dict(self.changes),
            "modelled": True,
            "error_rms": error_of(self.workload.entry.operator),
            "microseconds": float(modelled.microseconds),
            "stream_microseconds": float(modelled.stream_microseconds),
            "tflops": modelled.flops_per_second / 1e12,
            "gigabytes_per_second": modelled.bytes_per_second / 1e9,
            "clock_ghz": float(modelled.clock_ghz),
            "clocks": modelled.clocks,
            "workgroups": len(self.traced.launch.work),
            "workgroups_per_cu": modelled.resident,
            "limits": {
                "matrix_tflops": limit.peak_flops / 1e12,
                "matrix_tflops_at_modelled_clock": limit.clocked_flops / 1e12,
                "hbm_gigabytes_per_second": limit.hbm_bytes / 1e9,
            },
            "shares": shares(self),
            "bound": asdict(self.bound),
            "units": units(modelled),
            "workgroup": plain_workgroup(group),
            "sensitivity": self.effects and [_effect(effect) for effect in self.effects],
        }


def collect(
    workload: Workload,
    changes: Mapping[str, float],
    *,
    sensitivity: bool = True,
    say: Say = lambda _: None,
) -> Report:
    """Model a launch.

    Raises:
        ValueError: an unknown parameter or an invalid value; a `ShapeError`.
        CodeObjectError: the kernel's file cannot be used.
        RuntimeError: the emulator cannot execute the kernel to its end.
    """
    say("preparing buffers")
    launch = workload.launch()
    say(f"executing {len(launch.samples)} of {len(launch.work):,} workgroups")
    traced = trace(launch)
    say("replaying them")
    modelled = model.time(traced, changes)
    group = longest(traced, modelled)
    return Report(
        workload,
        changes,
        traced,
        modelled,
        group,
        limits(modelled, group),
        bound(modelled, group.wave_clocks),
        effects(traced, changes, say) if sensitivity else None,
    )


def shares(report: Report) -> dict[str, float | None]:
    """The launch's rates as shares of the limits; None: the kernel has no matrix instructions."""
    modelled, limit = report.modelled, report.limits
    flops = modelled.flops_per_second
    return {
        "matrix": flops / limit.peak_flops if limit.peak_flops else None,
        "matrix_at_modelled_clock": flops / limit.clocked_flops if limit.clocked_flops else None,
        "hbm": modelled.bytes_per_second / limit.hbm_bytes,
    }


def plain_workgroup(group: Workgroup) -> dict[str, Any]:
    """A workgroup as plain data; clocks of waves and lines are the average wave's."""
    return {
        "number": group.number,
        "waves": group.waves,
        "clocks": group.clocks,
        "phases": group.phases and asdict(group.phases),
        **asdict(group.wave_clocks),
        "lines": [
            {"line": at, "clocks": own.total, **asdict(own)} for at, own in group.lines.items()
        ],
    }


def _effect(effect: Effect) -> dict[str, Any]:
    parameter = effect.parameter
    return {
        "parameter": parameter.name,
        "certainty": parameter.certainty,
        "unit": parameter.unit,
        "low": parameter.low,
        "value": parameter.value,
        "high": parameter.high,
        "time_at_low": effect.low,
        "time_at_high": effect.high,
    }
