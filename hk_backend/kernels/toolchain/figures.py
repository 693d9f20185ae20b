"""What the analysis of a kernel found, as the catalogue keeps it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figures:
    """Clocks are per iteration of the steady loop, shares are of 1; None: no steady loop, or no
    emulated run."""

    waves_per_simd: int
    """As registers and LDS admit."""
    waterfall_loops: int
    """Loops that the compiler makes around an access whose descriptor differs between lanes."""
    vmcnt0_in_loop: int
    """Waits of the steady loop for every outstanding load."""
    conditional_instructions: int | None = None
    """Of the steady loop, in blocks that not every iteration passes through; not in the clocks."""
    loop_clocks: float | None = None
    """By llvm-mca, one wave, over 300 iterations."""
    mfma_share: float | None = None
    """Clocks of the matrix instructions over `loop_clocks`."""
    useful_mfma_share: float | None = None
    """The same of useful matrix FLOPs at the peak rate."""
    pair_matrix_clocks: float | None = None
    """Two waves that share a SIMD: clocks of the matrix instructions of both."""
    pair_vector_clocks: float | None = None
    """... of the vector instructions, transcendentals by their rate."""
    pair_lds_clocks: float | None = None
    """... of the LDS, for the eight waves of a CU."""
    pair_useful_share: float | None = None
    """Useful matrix clocks of both waves over the largest of the three: what cannot be passed."""
    bank_conflict_factor: float | None = None
    """LDS phases taken over phases needed in the steady loop, in an emulated run."""
