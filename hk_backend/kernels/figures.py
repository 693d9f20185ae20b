"""A kernel's figures in the catalogue, from the analysis of its code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figures:
    """Figures from the analysis of a kernel's code.

    Clocks are per iteration of the steady loop; shares are fractions of 1. None: there is no steady
    loop, or no emulated run.
    """

    waves_per_simd: int
    """Waves that fit on a SIMD, by registers and LDS."""
    waterfall_loops: int
    """Loops of the compiler around an access whose descriptor differs between lanes."""
    vmcnt0_in_loop: int
    """Number of waits in the steady loop for every outstanding load."""
    conditional_instructions: int | None = None
    """Instructions of the steady loop in blocks that not every iteration passes through.
    `loop_clocks` does not include them."""
    loop_clocks: float | None = None
    """Clocks of one iteration of one wave, according to llvm-mca over 300 iterations."""
    mfma_share: float | None = None
    """Clocks of the matrix instructions, divided by `loop_clocks`."""
    useful_mfma_share: float | None = None
    """Clocks that the useful matrix FLOPs take at the peak rate, divided by `loop_clocks`."""
    bank_conflict_factor: float | None = None
    """LDS phases taken, divided by phases needed, in the steady loop of an emulated run."""
