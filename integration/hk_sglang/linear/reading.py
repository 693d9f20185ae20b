"""Packed weights that SGLang reads by name, to keep them for later or to save them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod
from sglang.srt.managers.scheduler_components import weight_updater
from sglang.srt.model_executor.model_runner_components.weight_exporter import WeightExporter
from sglang.srt.model_loader.loader import RemoteModelLoader, ShardedStateLoader

from hk_backend.engine import loggers
from hk_backend.engine.linear.model_files import refuse_saves
from hk_backend.engine.linear.route import PREFIX, is_attached
from hk_backend.engine.patching import wrap
from hk_sglang.linear.unquantized import unpacked

logger = loggers.of("sglang", "linear")


def install() -> None:
    """Changes SGLang's functions; harmless to call again."""
    wrap(WeightExporter, "get_weights_by_name", _by_name)
    wrap(weight_updater, "_export_static_state", _export)
    for owner in (ShardedStateLoader, RemoteModelLoader):
        refuse_saves(owner, "SGLang")


def _by_name(original: Any, exporter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Returns a parameter's first numbers; for that its layer gets its weight back temporarily."""
    parent = name.rpartition(".weight")[0].rpartition(".")[0]  # also for a shard of a merged layer
    layers = [
        layer
        for path, layer in exporter.get_model().named_modules(remove_duplicate=False)  # a tied head
        if path.rpartition(".")[0] == parent and is_attached(layer) and _is_empty(layer)
    ]
    if any(not isinstance(layer.quant_method, UnquantizedLinearMethod) for layer in layers):
        logger.error("hk_backend: %s: HK has it packed, in a quantised format", name)
        return None
    for layer in layers:
        layer.weight.data = unpacked(layer)
    try:
        return original(exporter, name, *args, **kwargs)
    finally:
        for layer in layers:
            layer.weight.data = torch.empty(0, dtype=layer.weight.dtype, device=layer.weight.device)


def _is_empty(layer: Any) -> bool:
    return all(
        parameter.numel() == 0 for name, parameter in layer.named_parameters() if name != "bias"
    )


def _export(original: Any, model: Any) -> Any:
    """Exports what outlives a release of memory: a model's buffers, except packed weights.

    The user has to update weights, with HK as without it.
    """
    kept = [
        (name, buffer)
        for name, buffer in model.named_buffers()
        if not name.rpartition(".")[2].startswith(PREFIX)
    ]
    return original(SimpleNamespace(named_buffers=lambda: kept))
