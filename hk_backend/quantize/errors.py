"""The one error type that the command shows its user."""

from __future__ import annotations

EXTRA = "quantize"
"""Of pyproject.toml: what the command needs."""


class QuantizeError(Exception):
    """Something about the model, the output folder or the options; the message says what to do."""
