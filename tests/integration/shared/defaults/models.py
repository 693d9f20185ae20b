"""The attention of the models that people serve, as shapes, with windows scaled down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Attention:
    """One kind of attention layer of a model.

    `window`: keys that a query sees, its own included; None: all. `sinks`: each head has a logit,
    `SINK`, that joins every softmax without a value.
    """

    name: str
    num_heads: int
    num_kv_heads: int
    head_size: int
    window: int | None = None
    sinks: bool = False

    def __str__(self) -> str:
        return self.name

    def mask(self) -> dict[str, Any]:
        """Arguments by which the reference masks as the layer does."""
        sinks = torch.full((self.num_heads,), SINK) if self.sinks else None
        return {"sliding_window": self.window, "sinks": sinks}


SINK = 1.0
WINDOW = 48
"""A window shorter than the sequences of traffic.py."""

LAYERS = (
    Attention("Llama 3", 32, 8, 128),  # 8B
    Attention("Llama 3.2 1B", 32, 8, 64),
    Attention("Qwen3", 40, 8, 128),  # 14B
    Attention("Mistral", 32, 8, 128, window=WINDOW),  # 7B v0.1
    Attention("gpt-oss, windows", 64, 8, 64, window=WINDOW, sinks=True),
    Attention("gpt-oss, full", 64, 8, 64, sinks=True),  # every other layer
    Attention("Gemma 3, windows", 8, 4, 256, window=WINDOW),  # 4B
    Attention("Gemma 3, full", 8, 4, 256),  # one layer in six
)
