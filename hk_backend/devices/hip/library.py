"""The HIP runtime of this process: the library that torch itself calls (csrc/hip)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from hk_backend import _hip
from hk_backend.kernels import KernelEntry

CAPTURE_ERRORS = range(900, 909)
"""Codes of hipErrorStreamCapture*: a call is not allowed in a capture, perhaps another stream's."""


class HipError(RuntimeError):
    """A HIP call failed; the message has the call, HIP's name of the error and its text."""

    def __init__(self, call: str, code: int, name: str, text: str) -> None:
        super().__init__(f"{call}: {name} ({code}): {text}")
        self.code = code


def ended_by_a_capture(error: Exception) -> bool:
    """Whether a call of HIP or torch failed because some stream is being captured."""
    return getattr(error, "code", None) in CAPTURE_ERRORS or "captur" in str(error)


class HipLibrary(_hip.Library):
    """The HIP functions that a launch needs."""

    @contextmanager
    def current(self, index: int) -> Iterator[None]:
        """Makes device `index` this thread's current one, and restores the previous one."""
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
            CodeObjectError: the file is not the one in the catalogue.
        """
        return self.load_image(entry.code_object())


def mapped_library(user: str = torch._C.__file__) -> HipLibrary:
    """The HIP runtime of this process.

    Args:
        user: path of a mapped library that calls the runtime; by default torch's extension.

    Raises:
        DeviceError: there is no HIP runtime, or it is too old.
    """
    return HipLibrary(_hip.runtime_of(user), load=False)


def mapped_runtimes() -> list[str]:
    """Path of every HIP runtime that this process has mapped, torch's or not."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    files = {line.split(maxsplit=5)[-1] for line in lines if "/" in line}
    return sorted(file for file in files if Path(file).name.startswith("libamdhip64"))


def source(path: str) -> str:
    """Origin of the HIP runtime at `path`, judged by its folders."""
    folders = Path(path).parts
    if "_rocm_sdk_core" in folders:
        return "ROCm's pip packages"
    return "torch's wheel" if "torch" in folders else "the system"
