"""The weights of the linear layers of Llamas, as engines merge them and shard them over GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HEAD_SIZE = 128


@dataclass(frozen=True)
class Llama:
    """Sizes of a model's config."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int

    def weights(self, ranks: int) -> dict[str, tuple[int, int]]:
        """`(n, k)` of one of `ranks` GPUs, by layer. Raises `ValueError` for a number of them that
        the model does not divide into."""
        if self.heads % ranks or self.intermediate % ranks:
            raise ValueError(f"{ranks} GPUs do not divide {self.heads} heads evenly")
        kv_heads = max(self.kv_heads // ranks, 1)
        heads = self.heads // ranks
        return {
            "qkv": ((heads + 2 * kv_heads) * HEAD_SIZE, self.hidden),
            "o": (self.hidden, heads * HEAD_SIZE),
            "gate_up": (2 * self.intermediate // ranks, self.hidden),
            "down": (self.hidden, self.intermediate // ranks),
        }


MODELS: Mapping[str, Llama] = {
    "llama8b": Llama(4096, 14336, 32, 8),
    "llama70b": Llama(8192, 28672, 64, 8),
}


def weights(model: str, ranks: int = 1) -> dict[str, tuple[int, int]]:
    """`(n, k)` by `llama8b-qkv`, with `/tp8` behind it on eight GPUs. Raises `ValueError`."""
    tp = f"/tp{ranks}" if ranks > 1 else ""
    found = MODELS[model].weights(ranks).items()
    return {f"{model}-{layer}{tp}": shape for layer, shape in found}


def name_of(n: int, k: int) -> str:
    """What such a weight is called, where a model on one GPU or on eight has it; else `NxK`."""
    for model in MODELS:
        for ranks in (1, 8):
            for name, shape in weights(model, ranks).items():
                if shape == (n, k):
                    return name
    return f"{n}x{k}"
