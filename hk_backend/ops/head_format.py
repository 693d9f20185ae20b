"""Formats of an LM head, their names in a configuration, and the rounding of the head's inputs.

Inputs are rounded where that gains time (docs/quantize.md has the figures). With 4 bits they are
rotated, which costs no time, and then rounded, so that products are of integers. With 6 and 8 bits
only the weights are quantised.
"""

from __future__ import annotations

from hk_backend.ops.rotation import fitting_rotation
from hk_backend.terms.weight_format import FORMATS, rotated_activations

HEAD_KEY = "hk_head"
"""Key of the LM head's format, at the top level of a checkpoint's `quantization_config`."""
KEPT = "16"
"""Value for a head that keeps the model's dtype, as its table has it."""
EMBEDDING_KEY = "hk_embedding"
"""Key, beside `HEAD_KEY`, that says where an embedding tied to the head looks up its rows."""
IN_HEAD = "head"
"""Value for an embedding that looks up its rows in the packed head; its own table is released."""
EMBEDDINGS = (KEPT, IN_HEAD)
HEADS = (KEPT, *(name for name, format in FORMATS.items() if format.is_quantised))


def head_option(quant_method: str) -> str:
    """Name of the option for the head's format, which is shorter in HK's own methods."""
    return "head" if quant_method.startswith("hk_") else HEAD_KEY


def embedding_option(quant_method: str) -> str:
    """Name of the option for the table in which the embedding looks up its rows."""
    return "embedding" if quant_method.startswith("hk_") else EMBEDDING_KEY


def head_rounding(format: str, k: int) -> tuple[str, int]:
    """`activations` and `rotation` of `pack_weight` for a head `[n, k]` in a quantised `format`."""
    if FORMATS[format].bits > 4:
        return "none", 0
    rotation = fitting_rotation(k)
    return rotated_activations("mx", rotation), rotation
