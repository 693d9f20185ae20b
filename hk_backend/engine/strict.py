"""HK_STRICT=1: a layer that would fall back to the engine is an error."""

from __future__ import annotations

from hk_backend.config import get_config


class StrictError(RuntimeError):
    """HK_STRICT=1 and a layer would fall back; the message says why."""


def refuse(why: str, what: str = "attention") -> str:
    """Returns `why` unchanged: the reason why the layer `what` falls back, or empty.

    Raises:
        StrictError: the layer falls back, with HK_STRICT=1.
    """
    if why and get_config().strict:
        raise StrictError(f"HK_STRICT=1: {what} would fall back: {why}") from None
    return why
