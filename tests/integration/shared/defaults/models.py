"""The attention of the models that people serve, as shapes: heads scaled down, in their ratio."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Attention:
    """One kind of attention layer of a model.

    `window`: keys that a query sees, its own included; None: all. `sinks`: each head has a logit
    that joins every softmax without a value.
    """

    name: str
    num_heads: int
    num_kv_heads: int
    head_size: int
    window: int | None = None
    sinks: bool = False

    def __str__(self) -> str:
        return self.name


WINDOW = 48
"""Scaled down, too: shorter than the sequences of traffic.py."""

LAYERS = (
    Attention("Llama 3", 8, 2, 128),  # 8B: 32 and 8 heads
    Attention("Llama 3.2 1B", 8, 2, 64),  # 32 and 8
    Attention("Qwen3", 10, 2, 128),  # 14B: 40 and 8
    Attention("Mistral", 8, 2, 128, window=WINDOW),  # 7B v0.1: 32 and 8
    Attention("gpt-oss, windows", 16, 2, 64, window=WINDOW, sinks=True),  # 64 and 8
    Attention("gpt-oss, full", 16, 2, 64, sinks=True),  # every other layer
    Attention("Gemma 3, windows", 4, 2, 256, window=WINDOW),  # 4B: 8 and 4
    Attention("Gemma 3, full", 4, 2, 256),  # one layer in six
)
