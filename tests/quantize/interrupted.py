"""Quantising with an interruption: small shards, and progress that stops the run."""

from __future__ import annotations

from typing import Any

from hk_backend.quantize.settings import Settings

SMALL = 1 << 18
"""Bytes of a shard: two layers, or the embeddings, or the head."""


class Interrupted(Exception):
    pass


def stop_after(bytes_read: int) -> Any:
    """Progress that interrupts the run once so much of the source has been read."""
    done = 0

    def advance(name: str, count: int) -> None:
        nonlocal done
        done += count
        if done > bytes_read:
            raise Interrupted

    return advance


def settings(**changed: Any) -> Settings:
    return Settings(**{"format": "mxfp8", "shard_bytes": SMALL, **changed})
