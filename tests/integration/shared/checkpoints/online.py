"""What `--quantization hk_mxfp4` makes of a checkpoint that is not quantised."""

from __future__ import annotations

import torch

from hk_backend import reference
from hk_backend.quantize.method import Method
from hk_backend.quantize.recipe import RECIPES
from tests.integration.shared.checkpoints.scheme import Layer, Scheme

ROTATION = 64


def _layer(weight: torch.Tensor) -> Layer:
    """As `hk-backend quantize --method rotated` quantises it."""
    method = Method("rotated", ROTATION)
    codes, scales = method.quantize(method.target(weight), RECIPES["mxfp4"])
    return Layer({}, reference.dequantize(codes, "mxfp4", scales))


ONLINE = Scheme("online-hk_mxfp4", _layer, {}, "mx_rotated", "mxfp4", rotation=ROTATION)
