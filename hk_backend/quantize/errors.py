"""The error type that `hk-backend quantize` shows its user."""

from __future__ import annotations

EXTRA = "quantize"
"""Extra of pyproject.toml with the packages that the command needs."""


class QuantizeError(Exception):
    """The model, the output folder or an option is at fault; the message says what to do."""
