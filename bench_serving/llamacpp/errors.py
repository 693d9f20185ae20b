"""The error of converting a checkpoint."""

from __future__ import annotations


class ConvertError(RuntimeError):
    """The checkpoint cannot be converted to a GGUF file; the message says why."""
