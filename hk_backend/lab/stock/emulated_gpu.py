"""The emulated GPU beneath a whole engine: Triton's and Inductor's, before anything is imported."""

from __future__ import annotations

import sys

from hk_backend.engine.evidence import modelling
from hk_backend.lab.foreign import inductor, triton_driver
from hk_backend.lab.foreign.triton_driver import TritonGpu


def install_before(engine: str, arch: str) -> TritonGpu:
    """Make an emulated GPU that of Triton and Inductor in this process, for the package `engine`.

    Its clock then times the engine's kernels where HK asks whether they are faster.

    Raises:
        ModuleNotFoundError: Triton is not installed.
        RuntimeError: `engine` has been imported already.
        ValueError: no such arch.
    """
    if engine in sys.modules:
        raise RuntimeError(
            f"{engine} has been imported; valid: install() before the first import of it"
        )
    gpu = triton_driver.install(arch)
    inductor.install(gpu)
    modelling.use(gpu.microseconds, f"emulated:{arch}")
    return gpu
