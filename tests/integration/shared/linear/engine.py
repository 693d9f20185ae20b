"""The protocol between the shared tests of the linear route and each engine.

The module `linear_layers` in an engine's folder implements it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from hk_backend.engine.linear.heads import Head
from tests.integration.shared.checkpoints import Scheme

Context = Callable[..., AbstractContextManager[Any]]


class LinearEngine(Protocol):
    """An engine's module. Layers are merged column-parallel ones with real quantisation methods."""

    CHECKPOINTS: Mapping[str, Scheme]
    """Checkpoints that the engine has a configuration for."""

    # -- the engine, and the route in it
    alone: Context
    """The engine's state for making layers, in a process that is its only rank.

    HK runs on this machine's best device. HK_DEVICE=auto would leave some layers to torch.
    """
    restored: Context
    """Restore the engine afterwards."""
    installed: Context
    """Install the linear route, and restore the engine afterwards."""
    register_linear: Callable[[], str]
    """Install the linear route in this process from here on; returns why not, if it could not."""
    unquantised: Callable[[], tuple[Any, Any]]
    """The engine's methods of linear layers and of embeddings."""
    register_method: Callable[..., Any]
    """`(patch, name)`: register `--quantization name` as another plugin would; its class."""
    method: Callable[[str], Any]
    """The class that reads the configuration of a quantisation method."""
    config_of: Callable[[dict[str, Any]], Any]
    """The engine's configuration object for a checkpoint's `quantization_config`."""
    online: Callable[[str], Any]
    """The configuration of `--quantization METHOD` over a checkpoint that is not quantised."""

    # -- layers
    merged: Callable[..., Any]
    """`(config, dtype, k, widths, prefix=)`: a layer of `widths` output features, not loaded."""
    on_rank: Context
    """`(number, size, device)`: a process of that rank, with a function to make layers in it."""
    load: Callable[..., Any]
    """`(layer, shards)`: the layer with its tensors, one for each shard, and processed."""
    loaded: Callable[..., Any]
    """`(config, tensors, prefix=, dtype=)`: the layer of a model whose checkpoint holds `tensors`,
    through the engine's loader."""
    dummy: Callable[[Any], Any]
    """`(config)`: a layer as `--load-format dummy` leaves it."""
    reload: Callable[..., None]
    """`(module, tensors)`: load other tensors, by its parameters, as the engine updates weights."""
    forward: Callable[[Any, torch.Tensor], torch.Tensor]
    adapted: Callable[..., torch.Tensor]
    """`(layer, x, a, b)`: the output of a row-parallel layer in the engine's LoRA wrapper. The
    adapter is `a` `[rank, k]` and `b` `[n, rank]`, and `x` is `[tokens, k]`."""
    why_left: Callable[[Any], str]

    # -- heads
    headed: Callable[..., Any]
    """`(asked, table, tied=, number=, ranks=, why=)`: on a rank, a model whose `lm_head` has this
    table `[vocabulary, K]`. It is loaded while `asked` is asked of it. `embed_tokens` has the same
    table, if they are `tied`. `why`: a reason for which the table may not be released. The model's
    `why_table_stays` is the engine's answer."""
    update: Callable[[Any, torch.Tensor], None]
    """Load another table into that model, as the engine updates weights."""
    logits: Callable[[Any, torch.Tensor], torch.Tensor]
    """The logits of that model's head for `x`, padding included."""
    head_requested_by: Callable[..., Head]
    """The request of a bfloat16 model with this `quantization_config` about its head, 300 x 96."""

    # -- models
    account: Callable[[torch.nn.Module], None]
    """Let the route count and check a loaded model."""
    experts: Callable[[], Any]
    """A mixture of experts, as an object that was never initialised."""
    savers: Callable[[], list[Any]]
    """Loaders that save the state of a model."""
