"""After a model is loaded: counts its layers by what computes them, and why."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

import torch

from hk_backend.config import get_config
from hk_backend.devices import device_for
from hk_backend.engine.linear.route import ROUTE
from hk_backend.engine.named_device import level
from hk_backend.engine.strict import StrictError
from hk_backend.routing.metrics import count_layer


def account(
    layers: Iterable[tuple[str, str]], engine: str, device_type: str, logger: logging.Logger
) -> str:
    """Count and log a model's layers.

    Args:
        layers: the name of each linear layer, and why the engine computes it; nothing if HK does.
        engine: its name. device_type: of the model's tensors.

    Returns:
        the device that computes HK's layers; nothing if there are none.

    Raises:
        StrictError: with HK_STRICT=1, if a layer is left to the engine.
    """
    served = 0
    left: Counter[str] = Counter()
    for name, why in layers:
        if why and get_config().strict:
            raise StrictError(f"HK_STRICT=1: {name} would fall back: {why}") from None
        served += not why
        left.update([why] if why else [])
    for why, number in [("", served), *left.items()]:
        for _ in range(number):
            count_layer(ROUTE, why)
    device = device_for(device_type).name if served else ""
    if served:
        logger.info("hk_backend: %d linear layers are computed by HK on %s", served, device)
    for why, number in sorted(left.items()):
        said = "hk_backend: %d linear layers are left to %s: %s"
        logger.log(level(served), said, number, engine, why)
    return device


def tables_as_heads(
    tables: list[torch.nn.Module], sizes: set[int], vocabulary: str
) -> list[torch.nn.Module]:
    """The embedding that computes a model's logits, where the model has no LM head (Gemma 2,
    Cohere): that with the vocabulary of the logits. Nothing tells it from other embeddings but
    the call.

    Args:
        tables: a model's embeddings; its attribute `vocabulary` is a table's number of tokens.
        sizes: of the logits.
    """
    return ([each for each in tables if getattr(each, vocabulary) in sizes] or tables)[:1]
