"""Hooks in SGLang's loaders, weight updates and weight exports."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod
from sglang.srt.managers.io_struct import EndWeightUpdateReqOutput
from sglang.srt.managers.scheduler_components import weight_updater as scheduler_updater
from sglang.srt.managers.scheduler_components.weight_updater import SchedulerWeightUpdaterManager
from sglang.srt.model_executor.model_runner_components import weight_updater
from sglang.srt.model_executor.model_runner_components.weight_exporter import WeightExporter
from sglang.srt.model_loader import loader
from sglang.srt.model_loader.loader import (
    DefaultModelLoader,
    PreshardedModelLoader,
    RemoteInstanceModelLoader,
    RemoteModelLoader,
    ShardedStateLoader,
)

from hk_backend.engine import loggers
from hk_backend.engine.linear.model_files import named_errors, refuse_saves, remember_names
from hk_backend.engine.linear.route import PREFIX, is_attached
from hk_backend.engine.linear.shards import CheckpointError
from hk_backend.engine.patching import wrap
from hk_sglang.linear.arrivals import expect_all
from hk_sglang.linear.layer import loading_prepared_weights
from hk_sglang.linear.unquantized import unpacked

logger = loggers.of("sglang", "linear")

PREPARED = (ShardedStateLoader, PreshardedModelLoader, RemoteModelLoader, RemoteInstanceModelLoader)
"""Loaders of states that are, or were saved from, a server's memory."""


def install() -> None:
    """Changes SGLang's functions; harmless to call again."""
    wrap(DefaultModelLoader, "load_weights_only", _load, static=True)
    wrap(loader, "initialize_dummy_weights", _dummy)
    wrap(weight_updater, "_model_load_weights_direct", _direct)
    wrap(SchedulerWeightUpdaterManager, "end_weight_update", _end)
    for owner in PREPARED:
        wrap(owner, "load_model", _load_prepared)
    wrap(WeightExporter, "get_weights_by_name", _by_name)
    wrap(scheduler_updater, "_export_static_state", _export)
    for owner in (ShardedStateLoader, RemoteModelLoader):
        refuse_saves(owner, "SGLang")


def _load(original: Any, model: Any, weights: Any, target_device: Any) -> None:
    with named_errors():
        original(model, remember_names(weights), target_device)


def _load_prepared(original: Any, *args: Any, **kwargs: Any) -> Any:
    with loading_prepared_weights():
        return original(*args, **kwargs)


def _dummy(original: Any, model: Any, *args: Any, **kwargs: Any) -> None:
    """Loads dummy weights (`--load-format dummy`) with values that can be packed."""
    for parameter in model.parameters():
        expect_all(parameter)
    original(model, *args, **kwargs)
    for parameter in model.parameters():
        value = getattr(parameter, "dummy_weight_value", None)
        if value is not None:
            parameter.data.fill_(value)


def _direct(original: Any, model: Any, named_tensors: Any) -> None:
    """Allocates the parameters of an update that copies into them itself (load_format="direct")."""
    parameters = dict(model.named_parameters())
    # an unknown name ends the update before anything is emptied
    for parameter in [parameters[name] for name, _ in named_tensors]:
        expect_all(parameter)
    original(model, named_tensors)


def _end(original: Any, manager: Any, request: Any) -> Any:
    """Answers a weight update that HK cannot pack with an error, instead of ending the server.

    The layer that the message names computes with the weights it had.
    """
    try:
        return original(manager, request)
    except CheckpointError as error:
        manager._session = None
        torch.distributed.barrier(group=manager.tp_cpu_group)
        return EndWeightUpdateReqOutput(
            success=False,
            message=f"{error}. The weights are only partly updated: discard all of them.",
        )


# -- packed weights that SGLang reads by name


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
