"""Files of HK_TUNING for tests: their lines, and the environment that names them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hk_backend.config import get_config
from hk_backend.kernels.catalogue import Family
from hk_backend.kernels.gemm_formats import format_of
from hk_backend.kernels.gemm_plan import candidates
from hk_backend.kernels.tuning import load
from hk_backend.kernels.tuning_fields import MEASURED, MODELLED

UNITS = 256
Line = dict[str, Any]


def line(family: Family, m: int, n: int, k: int, **changes: Any) -> Line:
    """A modelled one, of what the planner would choose last."""
    worst = max(candidates(family, m, n, k, UNITS), key=lambda found: found.microseconds)
    entry = worst.entry
    return {
        "arch": entry.arch,
        "compute_units": UNITS,
        **dict(zip(("activations", "weights", "scales"), format_of(entry), strict=True)),
        "m": m,
        "n": n,
        "k": k,
        "kernel": entry.name,
        "splits": worst.splits,
        "sha256": entry.sha256,
        "microseconds": 12.5,
        "source": MODELLED,
        **changes,
    }


def measured(family: Family, m: int, n: int, k: int, **changes: Any) -> Line:
    return line(family, m, n, k, **{"source": MEASURED, "device": "MI355X", **changes})


def write(path: Path, *lines: Line | bytes) -> Path:
    """A file of lines: dicts, or bytes as they are."""
    rows = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in lines]
    path.write_bytes(b"".join(row + b"\n" for row in rows))
    return path


@contextmanager
def configured(path: Path | None, **variables: str) -> Iterator[None]:
    """As if the process had started with these variables; `path`: of HK_TUNING."""
    named = {"HK_TUNING": str(path)} if path else {}
    kept = {name: value for name, value in os.environ.items() if name != "HK_TUNING"}
    caches = (get_config, load)
    try:
        for cached in caches:
            cached.cache_clear()
        with patch.dict(os.environ, {**kept, **named, **variables}, clear=True):
            yield
    finally:
        for cached in caches:
            cached.cache_clear()
