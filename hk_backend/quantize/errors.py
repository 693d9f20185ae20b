"""The one error that the command shows its user."""

from __future__ import annotations


class QuantizeError(Exception):
    """Something about the model, the output folder or the options; the message says what to do."""
