"""Error of the timing model against published figures, stated only here (docs/timing.md)."""

from __future__ import annotations

from collections.abc import Mapping

MATRIX, MEMORY = 0.05, 0.10
ERRORS: Mapping[str, float] = {
    "attention_prefill": MATRIX,
    "gemm": MATRIX,
    "quantize_fp8": MEMORY,
    "traffic": MEMORY,
}
"""Root mean square of the relative errors over published figures, for each operator.

Attention and GEMM share one error, and so do the memory-bound operators."""
UNCOMPARED: Mapping[str, str] = {
    "attention_merge": "nobody publishes the time of so short a launch of its kind",
    "measure": "nobody publishes the time of single instructions",
}
"""Reason why an operator has no error, for each operator that was compared with nothing."""


def error_of(operator: str) -> float | None:
    """Relative error (0.05: 5%) of an operator; None: no published figure to compare with."""
    return ERRORS.get(operator)


def statement(operator: str) -> str:
    """The note that stands beside every modelled figure of an operator."""
    error = error_of(operator)
    if error is None:
        why = UNCOMPARED.get(operator)
        return "modelled, not compared with any published figure" + (f": {why}" if why else "")
    return f"modelled, error {error:.0%} rms on published figures"
