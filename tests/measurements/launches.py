"""Timed launches for tests, and a folder of measurements that holds them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from hk_backend.config import get_config
from hk_backend.kernels.catalogue import Family
from hk_backend.kernels.gemm_operands import operands_of
from hk_backend.kernels.gemm_plan import candidates
from hk_backend.measurements import folder
from hk_backend.measurements.launches import timed_on
from hk_backend.measurements.machine import this_machine
from hk_backend.terms.measurements import MODELLED, MeasuredLaunch, Measurements

UNITS = 256
EMULATED = "emulated:gfx950"


def launch(family: Family, m: int, n: int, k: int, **changes: Any) -> MeasuredLaunch:
    """A modelled launch of the candidate that the planner would choose last."""
    worst = max(candidates(family, m, n, k, UNITS), key=lambda found: found.microseconds)
    entry, format = worst.entry, operands_of(worst.entry)
    given = {
        "arch": entry.arch,
        "compute_units": UNITS,
        "activations": format.activations,
        "weights": format.weights,
        "scales": format.scales,
        "m": m,
        "n": n,
        "k": k,
        "kernel": entry.name,
        "splits": worst.splits,
        "sha256": entry.sha256,
        "microseconds": 12.5,
        "source": MODELLED,
    }
    return MeasuredLaunch(**{**given, **changes})


@contextmanager
def timed(*launches: MeasuredLaunch, device: str = EMULATED, **variables: str) -> Iterator[Path]:
    """Pretend that these launches, and no others, were timed on `device` before the process started
    with these environment variables."""
    with TemporaryDirectory() as kept:
        try:
            with patch.dict(os.environ, {**variables, "HK_CACHE_DIR": kept}):
                _forget()
                folder.add(Measurements(machine=this_machine(device), launches=launches))
                yield Path(kept)
        finally:
            _forget()


def _forget() -> None:
    for cached in (get_config, timed_on):
        cached.cache_clear()
