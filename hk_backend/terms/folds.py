"""Which rotations of a checkpoint its other weights do: values of `--fold`.

See `hk_backend.quantize.folding`.
"""

from __future__ import annotations

NONE, HEADS, ALL = "none", "heads", "all"
FOLDS = (NONE, HEADS, ALL)
FOLD_KEY = "hk_folded"
"""At the top level of a checkpoint's `quantization_config`, if it is not `NONE`: stock readers look
past it, as they may, but whoever adds to a layer's outputs or reads hidden states must know."""
