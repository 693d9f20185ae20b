"""How far the model is from published figures: the one place that says so (docs/timing.md)."""

from __future__ import annotations

from collections.abc import Mapping

MATRIX, MEMORY = 0.05, 0.10
ERRORS: Mapping[str, float] = {
    "attention_prefill": MATRIX,
    "gemm": MATRIX,
    "quantize_fp8": MEMORY,
    "traffic": MEMORY,
}
"""By operator: root mean square of the relative errors over the published figures of such kernels,
of attention and GEMM together, of what memory bounds together."""
UNCOMPARED: Mapping[str, str] = {
    "attention_merge": "nobody publishes the time of so short a launch of its kind",
    "measure": "nobody publishes the time of single instructions",
}
"""By operator: why there is no error."""


def error_of(operator: str) -> float | None:
    """Share of 1; None where the model was compared with nothing."""
    return ERRORS.get(operator)


def statement(operator: str) -> str:
    """What stands beside every modelled figure."""
    error = error_of(operator)
    if error is None:
        why = UNCOMPARED.get(operator)
        return "modelled, not compared with any published figure" + (f": {why}" if why else "")
    return f"modelled, error {error:.0%} rms on published figures"
