"""Modelled figures of the shipped kernels (modelled.json). Reading them needs no emulator."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hk_backend.kernels.catalogue import CODE_OBJECTS
from hk_backend.kernels.entry import KernelEntry
from hk_backend.lab.toolchain.index_file import text_of

MODELLED = CODE_OBJECTS.with_name("modelled.json")
"""The file of modelled figures.

For each arch it has the errors by operator. For each kernel it has the digest of the code, and the
launches.
"""


@dataclass(frozen=True)
class ModelledLaunch:
    """Figures of a launch according to the timing model; none of them is measured."""

    tflops: float
    busiest: str
    """Name of the busiest resource: a unit of the CU, `idle CUs` or `launch`."""
    busiest_share: float
    """Share of the launch's time for which `busiest` was busy."""
    error_rms: float | None
    """Error (rms) of the model on published figures of such kernels; None: unknown."""
    terabytes: float | None = None
    """Terabytes per second to or from memory, for kernels without matrix FLOPs; otherwise None."""

    @property
    def rate(self) -> str:
        """The figure by which such kernels are compared, in `unit`."""
        return f"{self.tflops:.0f}" if self.terabytes is None else f"{self.terabytes:.2f}"

    @property
    def unit(self) -> str:
        return "TFLOP/s" if self.terabytes is None else "TB/s"


ModelledFigures = dict[str, ModelledLaunch]
"""Modelled figures of one kernel, by the name of the shape."""


def modelled_figures(entry: KernelEntry) -> ModelledFigures:
    """Figures of a kernel; none if it was never modelled, or if its code has changed since."""
    of_arch = _read(MODELLED).get(entry.arch, {})
    found = of_arch.get("kernels", {}).get(entry.name, {})
    if found.get("code") != entry.code:
        return {}
    error = of_arch["error_rms"][entry.operator]
    return {name: ModelledLaunch(**own, error_rms=error) for name, own in found["launches"].items()}


def write_modelled(found: Mapping[KernelEntry, ModelledFigures]) -> None:
    """Writes the figures of all kernels, with a line for each."""
    data: dict[str, Any] = {}
    for entry, launches in found.items():
        of_arch = data.setdefault(entry.arch, {"error_rms": {}, "kernels": {}})
        stored = {name: _stored(launch) for name, launch in launches.items()}
        of_arch["kernels"][entry.name] = {"code": entry.code, "launches": stored}
        for launch in launches.values():
            of_arch["error_rms"][entry.operator] = launch.error_rms
    MODELLED.write_text(text_of(data, levels=3) + "\n")
    _read.cache_clear()


@functools.cache
def _read(path: Path) -> Mapping[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def _stored(launch: ModelledLaunch) -> dict[str, Any]:
    """The launch without its error, which belongs to the operator, and without fields of None."""
    fields = asdict(launch)
    del fields["error_rms"]
    return {name: value for name, value in fields.items() if value is not None}
