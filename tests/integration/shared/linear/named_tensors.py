"""A checkpoint's tensors by their names, and a model of one merged layer that takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from tests.integration.shared.checkpoints import WIDTHS, K, Shards

ATTENTION, MLP = "model.layers.0.self_attn", "model.layers.0.mlp"
QKV, GATE_UP = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")


class Model(torch.nn.Module):
    """A model that loads like the engines' Llama.

    Shards have names in the checkpoint, and go into the merged layer by their number.
    """

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer
        self.parent = layer.prefix.rpartition(".")[0]
        self.shards = QKV if layer.prefix.endswith("qkv_proj") else GATE_UP

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        for name, tensor in weights:
            module, _, parameter = name.removeprefix(f"{self.parent}.").partition(".")
            index = self.shards.index(module) if module in self.shards else None
            held: Any = self.layer.get_parameter(parameter)
            held.weight_loader(held, tensor, *(() if index is None else (index,)))


def widths_of(prefix: str) -> list[int]:
    """Output features of the shards of the merged layer with that name."""
    return WIDTHS if prefix.endswith("qkv_proj") else WIDTHS[:2]


def named(
    shards: Shards, parent: str = ATTENTION, names: tuple[str, ...] = QKV
) -> dict[str, torch.Tensor]:
    """A checkpoint's tensors by their names."""
    return {
        f"{parent}.{name}.{parameter}": value
        for parameter, values in shards.items()
        for name, value in zip(names, values, strict=False)
    }


def without(tensors: dict[str, torch.Tensor], *names: str) -> dict[str, torch.Tensor]:
    assert set(names) <= set(tensors)
    return {name: tensor for name, tensor in tensors.items() if name not in names}


def bfloat16(seed: int = 3) -> dict[str, torch.Tensor]:
    """Weights that are not quantised."""
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(width, K, generator=generator).bfloat16() for width in WIDTHS]
    return named({"weight": weights})
