"""Restores SGLang after a test: everything that the linear route changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.integration.shared import restore as shared


@contextmanager
def restored() -> Iterator[None]:
    """Reset the counters, and at the end put back what the linear route changes in SGLang."""
    from sglang.srt.arg_groups import choices
    from sglang.srt.layers import linear, quantization

    tables = [
        getattr(quantization, f"{prefix}QUANTIZATION_METHODS") for prefix in ("", "BASE_", "CPU_")
    ]
    lists = [linear.WEIGHT_LOADER_V2_SUPPORTED, choices.QUANTIZATION_CHOICES]
    with shared.restored(_changed(), [*tables, *lists]):
        yield


def _changed() -> list[Any]:
    """The classes and modules of SGLang that the linear route changes."""
    from hk_sglang import serving
    from hk_sglang.linear import head, loading, model, schemes, unquantized
    from sglang.srt.layers.linear import LinearBase
    from sglang.srt.plugins.hook_registry import HookRegistry

    HookRegistry._hooks.pop("sglang.srt.configs.model_config.ModelConfig._verify_quantization", 0)
    return [
        LinearBase,
        unquantized.UnquantizedLinearMethod,
        head.UnquantizedEmbeddingMethod,
        head.LogitsProcessor,
        model.ModelRunner,
        model.TokenizerManager,
        loading.DefaultModelLoader,
        *loading.PREPARED,
        loading.SchedulerWeightUpdaterManager,
        loading.loader,
        loading.weight_updater,
        loading.scheduler_updater,
        loading.WeightExporter,
        serving.Scheduler,
        *schemes.CONFIGS,
    ]
