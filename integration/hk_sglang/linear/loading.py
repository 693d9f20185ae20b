"""HK's part in SGLang's loading of weights."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.managers.io_struct import EndWeightUpdateReqOutput
from sglang.srt.managers.scheduler_components.weight_updater import SchedulerWeightUpdaterManager
from sglang.srt.model_executor.model_runner_components import weight_updater
from sglang.srt.model_loader import loader
from sglang.srt.model_loader.loader import (
    DefaultModelLoader,
    PreshardedModelLoader,
    RemoteInstanceModelLoader,
    RemoteModelLoader,
    ShardedStateLoader,
)

from hk_backend.engine.linear.model_files import named_errors, remember_names
from hk_backend.engine.linear.shards import CheckpointError
from hk_backend.engine.patching import wrap
from hk_sglang.linear.arrivals import expect_all
from hk_sglang.linear.layer import loading_prepared_weights

PREPARED = (
    ShardedStateLoader,
    PreshardedModelLoader,
    RemoteModelLoader,
    RemoteInstanceModelLoader,
)
"""Loaders of states that are, or were saved from, a server's memory."""


def install() -> None:
    """Changes SGLang's functions; harmless to call again."""
    wrap(DefaultModelLoader, "load_weights_only", _load, static=True)
    wrap(loader, "initialize_dummy_weights", _dummy)
    wrap(weight_updater, "_model_load_weights_direct", _direct)
    wrap(SchedulerWeightUpdaterManager, "end_weight_update", _end)
    for owner in PREPARED:
        wrap(owner, "load_model", _load_prepared)


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
