"""The schemes of shared/checkpoints that SGLang has a configuration for, and kinds of its own."""

from __future__ import annotations

from functools import partial

from tests.integration.shared.checkpoints import LAYERS
from tests.integration.shared.checkpoints.numbers import fp8_block, fp8_column, mx
from tests.integration.shared.checkpoints.scheme import Scheme
from tests.integration.shared.checkpoints.schemes import named, quark

UNKNOWN_SCHEMES = ("modelopt-channel-token", "modelopt-block")
"""Schemes of ModelOpt whose algorithms SGLang has no configuration for."""
OF_AUTO_ROUND = ("ar-mxfp4-rotated", "ar-mxfp8-rotated")
"""Schemes of auto-round, of which SGLang reads integers alone."""
UNKNOWN = (*UNKNOWN_SCHEMES, *OF_AUTO_ROUND, "modelopt-mxfp8")
"""All schemes that SGLang does not know by these names: it calls ModelOpt's MXFP8 mxfp8."""
TENSOR = {"dtype": "fp8_e4m3", "symmetric": True, "is_dynamic": False}
PER_BLOCK = TENSOR | {"qscheme": "per_block", "ch_axis": 0, "block_size": [128, 128]}
PER_GROUP = TENSOR | {"qscheme": "per_group", "ch_axis": 0, "is_dynamic": True}
DYNAMIC = {"quant_method": "mxfp8", "activation_scheme": "dynamic"}
BLOCKS = partial(fp8_block, suffix="weight_scale")
CHECKPOINTS = {
    **{name: each for name, each in LAYERS.items() if name not in UNKNOWN},
    **named(
        Scheme("mxfp8", partial(mx, format="mxfp8"), DYNAMIC, "mx", "mxfp8"),
        Scheme("w8a8_fp8", fp8_column, {"quant_method": "w8a8_fp8"}, "token"),
        quark("quark-block", BLOCKS, PER_BLOCK, PER_GROUP, activations="token_block"),
    ),
}
