"""The one error of converting a checkpoint."""

from __future__ import annotations


class ConvertError(RuntimeError):
    """The checkpoint cannot become a GGUF file; the message names what is in the way."""
