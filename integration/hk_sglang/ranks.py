"""The ranks of a model in SGLang: its tensor-parallel group."""

from __future__ import annotations

from sglang.srt.runtime_context import get_parallel

from hk_backend.engine.evidence import ALONE, Ranks, ranks_of


def tensor_parallel() -> Ranks:
    """The ranks that load a model with this process; this one alone if there is no group yet."""
    try:
        return ranks_of(get_parallel().tp_group)
    except (AttributeError, RuntimeError, ValueError):  # no group has been made
        return ALONE
