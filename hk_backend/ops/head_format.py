"""What an LM head may be served in, how a configuration says so, and how its inputs are rounded.

The inputs are rounded where that gains time (docs/quantize.md has the figures): with 4 bits, whose
products are then of integers, and rotated before that, which takes none. With 6 and 8 bits the
weights alone are quantised.
"""

from __future__ import annotations

from hk_backend.ops.rotation import fitting_rotation
from hk_backend.terms.weight_format import FORMATS, rotated_activations

HEAD_KEY = "hk_head"
"""At the top level of a checkpoint's `quantization_config`: the format of its LM head."""
KEPT = "16"
"""As its table is, in the model's dtype."""
EMBEDDING_KEY = "hk_embedding"
"""Beside that key: where the embedding looks up its rows, if the head's table is its own, too."""
IN_HEAD = "head"
"""In the packed head: the table is released."""
EMBEDDINGS = (KEPT, IN_HEAD)
HEADS = (KEPT, *(name for name, format in FORMATS.items() if format.is_quantised))


def head_option(quant_method: str) -> str:
    """What says so in a configuration of such a method: HK's own have an option for it."""
    return "head" if quant_method.startswith("hk_") else HEAD_KEY


def embedding_option(quant_method: str) -> str:
    """The same of where the embedding looks up its rows."""
    return "embedding" if quant_method.startswith("hk_") else EMBEDDING_KEY


def head_rounding(format: str, k: int) -> tuple[str, int]:
    """`activations` and `rotation` of `pack_weight`, of a head `[n, k]` in a quantised `format`."""
    if FORMATS[format].bits > 4:
        return "none", 0
    rotation = fitting_rotation(k)
    return rotated_activations("mx", rotation), rotation
