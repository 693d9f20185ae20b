"""A checkpoint that `hk-backend quantize` has rotated is nothing that stock SGLang reads."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from sglang.srt.layers.quantization.compressed_tensors.compressed_tensors import (
    CompressedTensorsConfig,
)

from hk_backend.ops.rotation import ROTATION_KEY
from hk_backend.quantize.recipe import RECIPES


def test_sglang_refuses() -> None:
    """As installed: while it reads the config, by the key's name; one without it is read."""
    recipe = RECIPES["mxfp4"]
    with pytest.raises(ValidationError, match=rf"{ROTATION_KEY}\s+Extra inputs"):
        CompressedTensorsConfig.from_config(recipe.quantization_config("mx", [], rotation=64))
    CompressedTensorsConfig.from_config(recipe.quantization_config("mx", []))
