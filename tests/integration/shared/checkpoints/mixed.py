"""A compressed-tensors checkpoint with a scheme for each decoder layer: one engine serves them all.

All of the schemes are weight-only. So an engine in float32 and transformers multiply by the same
numbers, and their answers differ by no more than a sum's rounding.
"""

from __future__ import annotations

from pathlib import Path

from tests.integration.shared.checkpoints.scheme import Made, Scheme, make_by_layer
from tests.integration.shared.checkpoints.schemes import SCHEMES

OF_LAYERS = ("ct-channel-weight-only", "ct-mxfp4-weight-only", "ct-mxfp4-rotated-weight-only")
"""The schemes of the first decoder layer, the second and the third."""


def make_mixed(source: Path, folder: Path) -> Made:
    """Quantise the tiny Llama in `source`, once."""
    schemes = [SCHEMES[name] for name in OF_LAYERS]
    groups = {
        f"group_{index}": scheme.config["config_groups"]["group_0"]
        | {"targets": [rf"re:.*layers\.{index}\..*"]}
        for index, scheme in enumerate(schemes)
    }
    config = schemes[0].config | {"config_groups": groups, "format": "mixed-precision"}

    def scheme_of(layer: str) -> Scheme:
        _, _, behind = layer.partition("layers.")
        return schemes[int(behind.partition(".")[0])]

    return make_by_layer("mixed", scheme_of, config, source, folder)
