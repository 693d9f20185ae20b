"""Writes the modelled figures of every kernel into the catalogue's indexes, after a build.

    make modelled
    python -m hk_backend.lab.timing.catalogue_figures [--output FOLDER]

The build (hk_backend/lab/toolchain/build.py) does not run the model: it leaves the figures of
new code empty.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hk_backend.kernels.catalogue import CODE_OBJECTS, arches, catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.figures import ModelledLaunch
from hk_backend.lab.timing import model
from hk_backend.lab.timing.busiest import busiest
from hk_backend.lab.timing.calibration import error_of
from hk_backend.lab.timing.launch import trace
from hk_backend.lab.timing.standard import LAUNCHES, shapes_of

Figures = dict[str, ModelledLaunch]
"""Modelled figures of one kernel, by the name of the shape."""


def figures(entry: KernelEntry) -> Figures:
    """Modelled figures of a kernel on its standard shapes, rounded for the catalogue.

    Raises `RuntimeError` if the emulator cannot execute the kernel to its end.
    """
    found = {}
    for name, shape in shapes_of(entry).items():
        modelled = model.time(trace(LAUNCHES[entry.operator](entry, shape), threads=1))
        most = busiest(modelled)
        found[name] = ModelledLaunch(
            tflops=round(modelled.flops_per_second / 1e12, 1),
            busiest=most.name,
            busiest_share=round(most.share, 3),
            error_rms=error_of(entry.operator),
            terabytes=None if modelled.flops else round(modelled.bytes_per_second / 1e12, 2),
        )
    return found


def of_all(entries: Sequence[KernelEntry], workers: int) -> Iterable[tuple[KernelEntry, Figures]]:
    """Yields each kernel with its figures, in order; `workers` threads model them."""
    with ThreadPoolExecutor(workers) as pool:
        yield from zip(entries, pool.map(figures, entries), strict=True)


def write(folder: Path, arch: str, found: dict[str, Figures]) -> None:
    """Write figures, by kernel name, into the indexes of an arch; other fields stay."""
    for path in sorted((folder / arch).glob("*.json")):
        data = json.loads(path.read_text())
        for kernel in data["kernels"]:
            own = found[kernel["name"]]
            kernel["modelled"] = {name: _stored(launch) for name, launch in own.items()}
        path.write_text(json.dumps(data, indent=1) + "\n")


def _stored(launch: ModelledLaunch) -> dict[str, Any]:
    """The launch as the index stores it; a kernel with FLOPs has no `terabytes`."""
    fields = asdict(launch)
    if launch.terabytes is None:
        del fields["terabytes"]
    return fields


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m hk_backend.lab.timing.catalogue_figures")
    parser.add_argument("--output", type=Path, default=CODE_OBJECTS, help="a folder for each arch")
    folder = parser.parse_args(argv).output
    for arch in arches(folder):
        entries = catalogue(arch, folder).kernels
        found: dict[str, Figures] = {}
        for entry, own in of_all(entries, len(os.sched_getaffinity(0))):
            said = ", ".join(f"{name} {launch.rate} {launch.unit}" for name, launch in own.items())
            print(f"{len(found) + 1}/{len(entries)} {entry.name}: {said}", file=sys.stderr)
            found[entry.name] = own
        write(folder, arch, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
