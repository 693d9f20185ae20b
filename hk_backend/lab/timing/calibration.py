"""Error of the timing model against published figures, stated only here (docs/timing.md)."""

from __future__ import annotations

from hk_backend.lab.timing.family import family_of

MATRIX, MEMORY = 0.05, 0.09
"""Root mean square of the relative errors over published figures of two kinds of kernels: the
larger of figures that parameters were chosen on and of the others; twelve of memory-bound kernels.

Attention and GEMM share one error, and so do the memory-bound families."""


def error_of(operator: str) -> float | None:
    """Relative error (0.05: 5%) of a family; None: no published figure to compare with."""
    family = family_of(operator)
    return None if family is None else family.error


def statement(operator: str) -> str:
    """The note that stands beside every modelled figure of a family."""
    error = error_of(operator)
    if error is None:
        family = family_of(operator)
        why = "" if family is None else family.uncompared
        return "modelled, not compared with any published figure" + (f": {why}" if why else "")
    return f"modelled, error {error:.0%} rms on published figures"
