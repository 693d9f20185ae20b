"""The ranks that share a model's layers: one of them measures, and all take its answer."""

from __future__ import annotations

from vllm.distributed import get_tp_group, model_parallel_is_initialized

from hk_backend.engine.evidence import ALONE, Ranks, ranks_of


def tensor_parallel() -> Ranks:
    """The ranks with the shards of the layers that this process is loading."""
    return ranks_of(get_tp_group()) if model_parallel_is_initialized() else ALONE
