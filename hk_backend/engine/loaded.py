"""The moment when an engine's model is loaded, and its weights stay where they are.

On the host a process then keeps freed memory. The malloc of glibc returns the free end of its heap
to the kernel when that exceeds a threshold. The threshold follows the sizes that a process happened
to free before (mallopt(3), M_TRIM_THRESHOLD).

An engine frees its activations layer by layer. If they exceed the threshold, the kernel maps and
clears the same pages anew for every layer. In vLLM 0.32 a prefill of 1024 tokens of SmolLM2 then
takes 91,000 page faults: 80 of 480 ms on a Zen 5. Whether this happens depends on how the model was
loaded, with HK or without.
"""

from __future__ import annotations

import ctypes
import logging
import os
from functools import cache

from hk_backend.engine.evidence import say_measured

logger = logging.getLogger(__name__)

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3), from glibc's malloc.h."""
KEPT_BYTES = 1 << 30
"""Most freed bytes that stay with a process, and least size of a buffer with its own mapping."""
USERS_CHOICE = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
"""Variables by which a user chooses the thresholds; glibc reads them when a process starts."""
TUNABLES = "GLIBC_TUNABLES"
"""Variable for all of glibc's settings, some of which are malloc's."""


def model_is_loaded(engine: str, log: logging.Logger, device_type: str) -> None:
    """Logs what was measured for the model, and prepares this process to compute.

    Harmless to call again, as several parts of an engine may notice the moment.

    Args:
        device_type: torch's name for the device that the engine computes on.
    """
    say_measured(engine, log)
    if device_type == "cpu":
        keep_freed_memory()


@cache
def keep_freed_memory() -> bool:
    """Lets this process keep up to `KEPT_BYTES` of freed memory.

    Called once models are loaded, so that weights that were released before do not stay.

    Returns:
        whether it does. Not if the user chose otherwise, or the C library has no `mallopt`. An
        allocator that replaces malloc (tcmalloc, jemalloc) ignores it.
    """
    if any(name in os.environ for name in USERS_CHOICE):
        return False
    if "glibc.malloc." in os.environ.get(TUNABLES, ""):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # a C library may refuse the first; then both stay as they were
    thresholds = M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
    kept = all(mallopt(which, KEPT_BYTES) == 1 for which in thresholds)
    if kept:
        said = "hk_backend: this process keeps up to 1 GiB that it frees (%s chooses otherwise)"
        logger.debug(said, USERS_CHOICE[0])
    return kept
