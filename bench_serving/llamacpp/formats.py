"""The formats in which llama.cpp serves a checkpoint, by name: nothing need be installed for it.

Which matrix has which type is `llama-quantize`'s choice. Norms are float32 in each.
"""

from __future__ import annotations

from dataclasses import dataclass

EXTRA = "llamacpp"
"""Of pyproject.toml: what writes GGUF and serves it."""

LONG_BLOCK = 256
"""Weights of a block of the K types; those of the others have 32."""


@dataclass(frozen=True)
class Format:
    """`weight`: GGML's type of every matrix but the head's, which is `head`: the embedding, where
    the two are tied. `file_type`: what the file calls itself. All are names of the gguf package."""

    weight: str
    head: str
    file_type: str

    def head_of(self, columns: int) -> str:
        """The type of a head with so many columns: Q6_K needs whole blocks."""
        return "Q8_0" if self.head.endswith("_K") and columns % LONG_BLOCK else self.head


UNQUANTIZED = "bf16"
FORMATS = {
    UNQUANTIZED: Format("BF16", "BF16", "MOSTLY_BF16"),
    "q8_0": Format("Q8_0", "Q8_0", "MOSTLY_Q8_0"),
    "q4_0": Format("Q4_0", "Q6_K", "MOSTLY_Q4_0"),
}
