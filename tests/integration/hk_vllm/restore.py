"""Restores vLLM after a test: everything that the plugin's routes change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.integration.shared import restore as shared


@contextmanager
def restored() -> Iterator[None]:
    """Reset the counters; restore vLLM's classes, kernel lists and registries at the end."""
    import vllm.model_executor.kernels.linear as lists
    from hk_vllm.attention import registry
    from hk_vllm.linear.kernel_lists import KERNELS
    from vllm.model_executor.layers import quantization
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    tables = [
        *(by_platform for name in KERNELS for by_platform in getattr(lists, name).values()),
        *(getattr(lists, name) for name in KERNELS),
        quantization.QUANTIZATION_METHODS,
        quantization._CUSTOMIZED_METHOD_TO_QUANT_CONFIG,
    ]
    try:
        with shared.restored([*_classes(), type(current_platform)], tables):
            yield
    finally:
        for member in AttentionBackendEnum:
            member.clear_override()
        registry._parents.clear()


def _classes() -> list[Any]:
    """The classes of vLLM whose methods the routes change."""
    from hk_vllm.linear import checkpoints, loading, model, unquantized
    from vllm.v1.worker.gpu_worker import Worker

    changed = [
        unquantized.UnquantizedLinearMethod,
        unquantized.UnquantizedEmbeddingMethod,
        checkpoints.compressed_tensors.CompressedTensorsConfig,
        model.BaseModelLoader,
        loading.DefaultModelLoader,
        loading.ShardedStateLoader,
        loading.TensorizerLoader,
        *checkpoints.METHODS,
        Worker,
    ]
    return list(dict.fromkeys(changed))
