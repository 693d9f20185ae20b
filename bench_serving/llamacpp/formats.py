"""Formats in which llama.cpp serves a checkpoint; this module needs no extra package.

Matrices have the types that `llama-quantize` chooses. Norms are float32 in every format.
"""

from __future__ import annotations

from dataclasses import dataclass

EXTRA = "llamacpp"
"""Extra of pyproject.toml with the packages that write and serve GGUF."""

LONG_BLOCK = 256
"""Number of weights in a block of the K types; other types have blocks of 32."""


@dataclass(frozen=True)
class GgufFormat:
    """The types of a checkpoint's matrices in a GGUF file, as names of the gguf package.

    `weight`: GGML's type of every matrix but the LM head. `head`: the type of the LM head, or of
    the embedding if the two are tied. `file_type`: the type that the file declares.
    """

    weight: str
    head: str
    file_type: str

    def head_of(self, columns: int) -> str:
        """The type of a head with this number of columns; Q6_K needs whole blocks."""
        return "Q8_0" if self.head.endswith("_K") and columns % LONG_BLOCK else self.head


UNQUANTIZED = "bf16"
FORMATS = {
    UNQUANTIZED: GgufFormat("BF16", "BF16", "MOSTLY_BF16"),
    "q8_0": GgufFormat("Q8_0", "Q8_0", "MOSTLY_Q8_0"),
    "q4_0": GgufFormat("Q4_0", "Q6_K", "MOSTLY_Q4_0"),
}
