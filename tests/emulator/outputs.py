"""Programs that must be free of findings, by what they write."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.emulator.assembly import run

LANES = np.arange(64, dtype=np.uint32)


def output(dwords: int = 64) -> np.ndarray:
    return np.full(dwords, 0xDEADBEEF, dtype=np.uint32)


def result(
    body: str, data: np.ndarray | None = None, dwords: int = 64, **options: Any
) -> np.ndarray:
    """Runs a program that must be free of findings, and gives its output."""
    out = output(dwords)
    report = run(body, data, out, **options)
    assert not report.findings, [f.message for f in report.findings]
    return out
