"""vLLM as it was before a test: whatever the plugin's routes change is put back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hk_backend.routing.routes import routes


@contextmanager
def restored() -> Iterator[None]:
    """Fresh counters; classes, kernel lists and registries of vLLM are restored at the end."""
    import vllm.model_executor.kernels.linear as lists
    from hk_vllm.linear.kernels import KERNELS
    from vllm.model_executor.layers import quantization
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    changed = [(owner, dict(vars(owner))) for owner in (*_classes(), type(current_platform))]
    kernels = {name: {k: list(v) for k, v in getattr(lists, name).items()} for name in KERNELS}
    methods = list(quantization.QUANTIZATION_METHODS)
    configs = dict(quantization._CUSTOMIZED_METHOD_TO_QUANT_CONFIG)
    routes.reset()
    try:
        yield
    finally:
        routes.reset()
        for owner, members in changed:
            for name in [name for name in vars(owner) if name not in members]:
                delattr(owner, name)
            for name, member in members.items():
                if vars(owner)[name] is not member:
                    setattr(owner, name, member)
        for name, by_platform in kernels.items():
            _refill(getattr(lists, name), by_platform)
        quantization.QUANTIZATION_METHODS[:] = methods
        _refill(quantization._CUSTOMIZED_METHOD_TO_QUANT_CONFIG, configs)
        for member in AttentionBackendEnum:
            member.clear_override()


def _classes() -> list[Any]:
    """The classes of vLLM whose methods the linear route changes."""
    from hk_vllm.linear import checkpoints, unquantized
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
    from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader
    from vllm.model_executor.model_loader.tensorizer_loader import TensorizerLoader

    changed = [
        unquantized.UnquantizedLinearMethod,
        unquantized.UnquantizedEmbeddingMethod,
        checkpoints.compressed_tensors.CompressedTensorsConfig,
        BaseModelLoader,
        DefaultModelLoader,
        ShardedStateLoader,
        TensorizerLoader,
        *checkpoints.METHODS,
    ]
    return list(dict.fromkeys(changed))


def _refill(mapping: Any, content: Any) -> None:
    mapping.clear()
    mapping.update(content)
