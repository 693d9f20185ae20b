"""The HIP runtime of this process: the library that torch's own calls go to (csrc/hip)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from hk_backend import _hip
from hk_backend.kernels import KernelEntry

CAPTURE_ERRORS = range(900, 909)
"""hipErrorStreamCapture*: what a capture does not allow, also of another stream's."""


class HipError(RuntimeError):
    """A HIP call failed; the message has the call, HIP's name of the error and its text."""

    def __init__(self, call: str, code: int, name: str, text: str) -> None:
        super().__init__(f"{call}: {name} ({code}): {text}")
        self.code = code


def ended_by_a_capture(error: Exception) -> bool:
    """Whether a call failed because a stream captures, perhaps another one; torch's calls, too."""
    return getattr(error, "code", None) in CAPTURE_ERRORS or "captur" in str(error)


class HipLibrary(_hip.Library):
    """The HIP functions that a launch needs."""

    @contextmanager
    def current(self, index: int) -> Iterator[None]:
        """Device `index` as this thread's current one, and back."""
        before = self.current_device()
        if before == index:
            yield
            return
        self.set_current_device(index)
        try:
            yield
        finally:
            self.set_current_device(before)

    def load(self, entry: KernelEntry) -> int:
        """The module of a kernel's code object, on the current device.

        Raises:
            CodeObjectError: it is not the catalogue's.
        """
        return self.load_image(entry.code_object())


def mapped_library(user: str = torch._C.__file__) -> HipLibrary:
    """The HIP runtime of this process.

    Args:
        user: the path of a mapped library that calls it; torch's extension.

    Raises:
        DeviceError: there is none, or it is too old.
    """
    return HipLibrary(_hip.runtime_of(user), load=False)


def mapped_runtimes() -> list[str]:
    """The path of every HIP runtime that this process has mapped, torch's or not."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    files = {line.split(maxsplit=5)[-1] for line in lines if "/" in line}
    return sorted(file for file in files if Path(file).name.startswith("libamdhip64"))


def source(path: str) -> str:
    """Who brought the HIP runtime at `path`, as its place says."""
    folders = Path(path).parts
    if "_rocm_sdk_core" in folders:
        return "ROCm's pip packages"
    return "torch's wheel" if "torch" in folders else "the system"
