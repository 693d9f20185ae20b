"""What the shared tests of the linear route ask of an engine: the module `linear_layers` of its
folder, which the fixture `engine` gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from hk_backend.engine.linear.heads import Head
from tests.integration.shared.checkpoints import Scheme

Context = Callable[..., AbstractContextManager[Any]]


class LinearEngine(Protocol):
    """Layers are merged column-parallel ones of the engine, with its real quantisation methods."""

    CHECKPOINTS: Mapping[str, Scheme]
    """What the engine has a configuration for."""

    # -- the engine, and the route in it
    alone: Context
    """What it needs to make layers, in a process that is its only rank, and HK's own best device:
    what `auto` leaves to torch on some machines is not the question here."""
    restored: Context
    """The engine as it was, afterwards."""
    installed: Context
    """The same, with the linear route."""
    register_linear: Callable[[], str]
    """The linear route in this process from here on; or why not."""
    unquantised: Callable[[], tuple[Any, Any]]
    """The engine's methods of linear layers and of embeddings."""
    register_method: Callable[..., Any]
    """`(patch, name)`: `--quantization name` as another plugin registers it; its class."""
    method: Callable[[str], Any]
    """The class that reads the configuration of a quantisation method."""
    config_of: Callable[[dict[str, Any]], Any]
    """The engine's reading of a checkpoint's `quantization_config`."""
    online: Callable[[str], Any]
    """Of a checkpoint that is not quantised: `--quantization METHOD`."""

    # -- layers
    merged: Callable[..., Any]
    """`(config, dtype, k, widths, prefix=)`: one of `widths` output features, not yet loaded."""
    on_rank: Context
    """`(number, size, device)`: what makes layers in such a process, of a class and arguments."""
    load: Callable[..., Any]
    """`(layer, shards)`: the layer with its tensors, one for each shard, and processed."""
    loaded: Callable[..., Any]
    """`(config, tensors, prefix=, dtype=)`: that of a model whose checkpoint holds `tensors`,
    through the engine's loader."""
    dummy: Callable[[Any], Any]
    """`(config)`: a layer as `--load-format dummy` leaves it."""
    reload: Callable[..., None]
    """`(module, tensors)`: load others, by its parameters, as the engine updates weights."""
    forward: Callable[[Any, torch.Tensor], torch.Tensor]
    adapted: Callable[..., torch.Tensor]
    """`(layer, x, a, b)`: what the LoRA wrapper of a row-parallel layer makes of `x` `[tokens, k]`
    under an adapter of `a` `[rank, k]` and `b` `[n, rank]`."""
    why_left: Callable[[Any], str]

    # -- heads
    headed: Callable[..., Any]
    """`(asked, table, tied=, number=, ranks=, why=)`: on a rank, a model whose `lm_head` has this
    table `[vocabulary, K]`, loaded while `asked` is asked of it; `embed_tokens` has the same, if
    they are `tied`. `why_table_stays`: what the engine says of it, if it may not be released
    because of `why`."""
    update: Callable[[Any, torch.Tensor], None]
    """Load another table into that model, as the engine updates weights."""
    logits: Callable[[Any, torch.Tensor], torch.Tensor]
    """What its head makes of `x`, padding included."""
    head_requested_by: Callable[[dict[str, Any]], Head]
    """What a bfloat16 model with this `quantization_config` asks of its head, 300 x 96."""

    # -- models
    account: Callable[[torch.nn.Module], None]
    """What the route does with a model that is loaded."""
    experts: Callable[[], Any]
    """A mixture's, not made."""
    savers: Callable[[], list[Any]]
    """Loaders that save the state of a model."""
