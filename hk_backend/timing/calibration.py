"""How far the model is from published figures: the one place that says so (docs/timing.md)."""

from __future__ import annotations

ERRORS = {"attention_prefill": 0.05, "gemm": 0.05}
"""By operator: root mean square of the relative errors over published kernels of its kind."""


def error_of(operator: str) -> float | None:
    """Share of 1; None where the model was compared with nothing."""
    return ERRORS.get(operator)


def statement(operator: str) -> str:
    """What stands beside every modelled figure."""
    error = error_of(operator)
    if error is None:
        return "modelled, not compared with any published figure"
    return f"modelled, error {error:.0%} rms on published figures"
