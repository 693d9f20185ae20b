"""Values of `--fold`: which rotations of a checkpoint are folded into its other weights.

See `hk_backend.quantize.folding`.
"""

from __future__ import annotations

NONE, HEADS, ALL = "none", "heads", "all"
FOLDS = (NONE, HEADS, ALL)
FOLD_KEY = "hk_folded"
"""Key of the folds, at the top level of `quantization_config`, unless they are `NONE`.

Stock readers safely ignore the key. Code that adds to a layer's outputs or reads hidden states
has to know the folds.
"""
