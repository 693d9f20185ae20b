"""Writes the modelled figures of every kernel (hk_backend/kernels/modelled.json), after a build.

    make modelled
    python -m hk_backend.lab.timing.catalogue_figures [--changed]

The figures of a kernel hold for its code: after a build they are gone for those that changed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from hk_backend.kernels.catalogue import arches, catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.lab.timing import model
from hk_backend.lab.timing.busiest import busiest
from hk_backend.lab.timing.calibration import error_of
from hk_backend.lab.timing.family import family_of
from hk_backend.lab.timing.launch import trace
from hk_backend.lab.toolchain.modelled import (
    ModelledFigures,
    ModelledLaunch,
    modelled_figures,
    write_modelled,
)


def figures(entry: KernelEntry) -> ModelledFigures:
    """Modelled figures of a kernel on its standard shapes, rounded for the catalogue.

    Raises `RuntimeError` if the emulator cannot execute the kernel to its end.
    """
    found = {}
    family = family_of(entry.operator)
    assert family is not None
    for name, shape in family.shapes(entry).items():
        modelled = model.time(trace(family.launch_of(entry, shape), threads=1))
        most = busiest(modelled)
        found[name] = ModelledLaunch(
            tflops=round(modelled.flops_per_second / 1e12, 1),
            busiest=most.name,
            busiest_share=round(most.share, 3),
            error_rms=error_of(entry.operator),
            terabytes=None if modelled.flops else round(modelled.bytes_per_second / 1e12, 2),
        )
    return found


def of_all(
    entries: Sequence[KernelEntry], workers: int
) -> Iterable[tuple[KernelEntry, ModelledFigures]]:
    """Yields each kernel with its figures, in order; `workers` threads model them."""
    with ThreadPoolExecutor(workers) as pool:
        yield from zip(entries, pool.map(figures, entries), strict=True)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m hk_backend.lab.timing.catalogue_figures")
    of_changed = "only kernels whose code has changed; right if the clock has not"
    parser.add_argument("--changed", action="store_true", help=of_changed)
    only_changed = parser.parse_args(argv).changed
    every = [entry for arch in arches() for entry in catalogue(arch).kernels]
    found = {entry: modelled_figures(entry) if only_changed else {} for entry in every}
    wanted = [entry for entry, own in found.items() if not own]
    for number, (entry, own) in enumerate(of_all(wanted, len(os.sched_getaffinity(0))), 1):
        said = ", ".join(f"{name} {launch.rate} {launch.unit}" for name, launch in own.items())
        print(f"{number}/{len(wanted)} {entry.name}: {said}", file=sys.stderr)
        found[entry] = own
    write_modelled(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
