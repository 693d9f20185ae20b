"""What the analysis of a kernel and the timing model found, as the catalogue keeps it."""

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
    bank_conflict_factor: float | None = None
    """LDS phases taken over phases needed in the steady loop, in an emulated run."""


@dataclass(frozen=True)
class ModelledLaunch:
    """A launch by the timing model: nothing of it was measured."""

    tflops: float
    busiest: str
    """A unit of the CU, `idle CUs` or `launch`."""
    busiest_share: float
    """Of the launch's time."""
    error_rms: float | None
    """Of the model, on published figures of such kernels; None: unknown."""
    terabytes: float | None = None
    """A second, to or from memory: of kernels without matrix FLOPs. None: it has some."""

    @property
    def rate(self) -> str:
        """What such kernels are compared by, in `unit`."""
        return f"{self.tflops:.0f}" if self.terabytes is None else f"{self.terabytes:.2f}"

    @property
    def unit(self) -> str:
        return "TFLOP/s" if self.terabytes is None else "TB/s"
