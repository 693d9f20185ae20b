"""Counts the layers of a loaded model by what computes them, and why."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

import torch

from hk_backend.devices import device_for
from hk_backend.engine.linear.route import ROUTE
from hk_backend.engine.loggers import level
from hk_backend.engine.strict import refuse
from hk_backend.routing.metrics import count_layer


def account(
    layers: Iterable[tuple[str, str]], engine: str, device_type: str, logger: logging.Logger
) -> str:
    """Counts and logs the layers of a model.

    Args:
        layers: name of each linear layer, and the reason why the engine computes it; empty if HK
            does.
        engine: name of the engine.
        device_type: torch device type of the model's tensors.

    Returns:
        the device that computes HK's layers; empty if there are none.

    Raises:
        StrictError: a layer is left to the engine, with HK_STRICT=1.
    """
    served = 0
    left: Counter[str] = Counter()
    for name, why in layers:
        if refuse(why, name):
            left[why] += 1
        else:
            served += 1
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
    """The embedding that computes the logits of a model without an LM head (Gemma 2, Cohere).

    It is the embedding with the logits' vocabulary, as nothing else tells it from other embeddings
    before the call.

    Args:
        tables: the model's embeddings; the attribute named `vocabulary` is a table's number of
            tokens.
        sizes: vocabulary sizes of the logits.
    """
    return ([each for each in tables if getattr(each, vocabulary) in sizes] or tables)[:1]
