"""The checkpoints of shared/linear_checkpoints.py that SGLang has a configuration for, and its
own kinds."""

from __future__ import annotations

from tests.integration.shared import linear_checkpoints as shared
from tests.integration.shared.linear_checkpoints import Checkpoint, blocks, mx, per_channel
from tests.integration.shared.quantization_configs import fp8, quark, quark_fp8

UNKNOWN_SCHEMES = ("modelopt-channel-token", "modelopt-block")
"""Of shared/checkpoints: SGLang has no configuration for ModelOpt's with these algorithms."""
UNKNOWN = ("modelopt-channel-token", "modelopt-mxfp8")
"""SGLang has no configuration that reads them so (it calls ModelOpt's MXFP8 mxfp8)."""
PER_BLOCK = quark_fp8("per_block", False) | {"block_size": [128, 128]}
OWN = {
    "mxfp8": Checkpoint(
        fp8("dynamic") | {"quant_method": "mxfp8"}, lambda: mx("mxfp8"), "mxfp8", "mx"
    ),
    "w8a8_fp8": Checkpoint({"quant_method": "w8a8_fp8"}, per_channel, "fp8_e4m3fn", "token"),
    "quark-block": Checkpoint(
        quark(PER_BLOCK, quark_fp8("per_group", True)), blocks, "fp8_e4m3fn", "token_block"
    ),
}
CHECKPOINTS = {
    **{name: each for name, each in shared.CHECKPOINTS.items() if name not in UNKNOWN},
    **OWN,
}
