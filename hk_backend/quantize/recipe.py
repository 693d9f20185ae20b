"""Output formats: how a layer is quantised and written, in each format's usual convention.

FP8, MXFP8 and MXFP4 are written as the library `compressed-tensors` (0.17) writes them. No standard
exists for 6-bit microscaling: MXFP6 is written as AMD Quark exports OCP MX, for vLLM's Quark loader
(`model_executor/layers/quantization/quark/`). So is MXFP4 with activations in a wider format.
Either, if rotated, is written in HK's own convention.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from hk_backend import ops
from hk_backend.ops.fp8_scales import fp8_scales
from hk_backend.ops.mx_scales import best_scales
from hk_backend.ops.rotation import ROTATION_KEY
from hk_backend.quantize.tensor import StoredTensor
from hk_backend.quantize.values import dequantize
from hk_backend.terms.weight_format import FORMATS, FP8_BLOCK, MX_BLOCK, WIDER

IGNORED = "lm_head"
"""Layer that no recipe quantises; nor does any quantise the embeddings."""


@dataclass(frozen=True)
class Recipe:
    """One value of `--format`.

    `name`: name on the command line. `format`: weight format of `hk_backend.ops.linear`.
    `granularity`: what a scale covers: "channel", "block" (128x128) or "mx" (32 along K).
    `activations`: activations that the format supports, the default first.
    """

    name: str
    format: str
    granularity: str
    activations: tuple[str, ...]
    quant_method: str = "compressed-tensors"
    caution: str = ""
    """Warning about the accuracy of quantised activations; empty: they cost little."""
    rotates: bool = False
    """Whether weights are rotated by default, if activations are quantised."""

    def beside(self, activations: str) -> Recipe:
        """The recipe for a name of `activations`, which its convention must be able to write.

        compressed-tensors' mxfp4 has one format for weights and activations, Quark one for each.
        """
        if activations not in WIDER.get(self.format, ()):
            return self
        return replace(self, quant_method="quark", caution="", rotates=False)

    @property
    def can_rotate(self) -> bool:
        """Whether weights and activations may be rotated."""
        return self.granularity == "mx"

    @property
    def methods(self) -> tuple[str, ...]:
        """Values of `--method` that the format supports, the default first."""
        if self.granularity != "mx":
            return ("rtn", "gptq")
        return (*(("rotated", "scales") if self.rotates else ("scales", "rotated")), "gptq", "rtn")

    @property
    def row_multiple(self) -> int:
        """Divisor that K, the number of a layer's input channels, must have."""
        return MX_BLOCK if self.granularity == "mx" else 8

    def stored(self, n: int, k: int) -> tuple[StoredTensor, StoredTensor]:
        """Names, shapes and dtypes of a weight's codes and scales in the file, for `[n, k]`."""
        if self.granularity == "channel":
            scales = StoredTensor("weight_scale", (n, 1), torch.float32)
        elif self.granularity == "block":
            blocks = (-(-n // FP8_BLOCK), -(-k // FP8_BLOCK))
            scales = StoredTensor("weight_scale", blocks, torch.float32)
        else:
            scales = StoredTensor("weight_scale", (n, k // MX_BLOCK), torch.uint8)
        if self.format in ("fp8_e4m3fn", "mxfp8"):
            return StoredTensor("weight", (n, k), torch.float8_e4m3fn), scales
        packed = self.format == "mxfp4" and self.quant_method == "compressed-tensors"
        shape = (n, FORMATS[self.format].row_codes(k))
        return StoredTensor("weight_packed" if packed else "weight", shape, torch.uint8), scales

    def quantize(self, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes and scales of `weight` `[n, k]` in the shapes and dtypes of `stored`.

        FP8 scales map the largest value of a channel or block to the largest code. MX scales are
        rounded as Quark rounds them ("even"): a block's largest element may round up instead of
        saturating.
        """
        if self.granularity == "mx":
            return ops.quantize_mx(weight, self.format, scale_rounding="even")
        return ops.quantize_fp8(weight, self.granularity, self.best_scales(weight))

    def best_scales(self, weight: torch.Tensor) -> torch.Tensor:
        """Scales of a finite `weight` `[n, k]`, in the shape and dtype of `stored`.

        For MX, `hk_backend.ops.mx_scales` chooses the scales of least error. For FP8 the scales are
        those of `quantize`, since floats have the same relative precision at any scale.
        """
        if self.granularity == "mx":
            return best_scales(weight, self.format)
        return fp8_scales(weight, self.granularity, FORMATS[self.format].quantised_max)

    def dequantize(self, codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        """The exact float32 values `[n, k]` of what `quantize` returned."""
        return dequantize(codes, self.format, scales)

    def relative_error(
        self, codes: torch.Tensor, scales: torch.Tensor, exact: torch.Tensor
    ) -> float:
        """||Q - W|| / ||W|| in the Frobenius norm; 0 if W, float32 `exact`, is zero."""
        norm = exact.norm(dtype=torch.float64)
        difference = (self.dequantize(codes, scales) - exact).norm(dtype=torch.float64)
        return float(difference / norm) if norm else 0.0

    def quantization_config(
        self, activations: str, ignored: list[str], rotation: int = 0, folded: Sequence[str] = ()
    ) -> dict[str, Any]:
        """The `quantization_config` of config.json.

        Args:
            activations: how activations are quantised; "none": not at all.
            ignored: names of the layers that are not quantised.
            rotation: see `ROTATION_KEY`.
            folded: ends of the names of layers whose inputs are rotated by other weights.
        """
        ignored = [IGNORED, *ignored]
        if self.quant_method == "quark" and rotation:
            return hk_config(self, activations, ignored, rotation)
        if self.quant_method == "quark":
            return quark_config(self, activations, ignored)
        return compressed_tensors_config(self, activations, ignored, rotation, folded)


CAUTION = (
    "mxfp4 activations are coarse: SmolLM2-135M's perplexity became 2.8 times what it was when "
    "rounded to nearest, 2.4 times when rotated, 1.4 times by --method gptq (1.1 times with it and "
    "--activations mxfp6_e2m3), and 1.4 times with --activations none (--text FILE measures it for "
    "your model)"
)
MXFP4_ACTIVATIONS = ("mx", *WIDER["mxfp4"], "none")
RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("fp8", "fp8_e4m3fn", "channel", ("token", "none")),
        Recipe("fp8_block", "fp8_e4m3fn", "block", ("token_block", "none")),
        Recipe("mxfp8", "mxfp8", "mx", ("mx", "none")),
        Recipe("mxfp6_e2m3", "mxfp6_e2m3", "mx", ("mx", "none"), "quark"),
        Recipe("mxfp6_e3m2", "mxfp6_e3m2", "mx", ("mx", "none"), "quark"),
        Recipe("mxfp4", "mxfp4", "mx", MXFP4_ACTIVATIONS, caution=CAUTION, rotates=True),
    )
}


def compressed_tensors_config(
    recipe: Recipe, activations: str, ignored: list[str], rotation: int, folded: Sequence[str]
) -> dict[str, Any]:
    """`QuantizationConfig` of compressed-tensors as JSON, with the fields that its reader uses."""
    bits = 4 if recipe.format == "mxfp4" else 8
    weights = {"num_bits": bits, "type": "float", "symmetric": True, "dynamic": False}
    inputs = {"num_bits": bits, "type": "float", "symmetric": True, "dynamic": True}
    if recipe.granularity == "mx":
        layout = "mxfp4-pack-quantized" if bits == 4 else "mxfp8-quantized"
        blocks = {"strategy": "group", "group_size": MX_BLOCK, "scale_dtype": "torch.uint8"}
        weights |= blocks
        inputs |= blocks
    else:
        # the library keeps "float-quantized" for quantised weights and activations
        layout = "naive-quantized" if activations == "none" else "float-quantized"
        if recipe.granularity == "block":
            weights |= {"strategy": "block", "block_structure": [FP8_BLOCK, FP8_BLOCK]}
            inputs |= {"strategy": "group", "group_size": FP8_BLOCK}
        else:
            weights |= {"strategy": "channel"}
            inputs |= {"strategy": "token"}
    group = {
        "targets": ["Linear"],
        "weights": weights,
        "input_activations": None if activations == "none" else inputs,
        "output_activations": None,
        "format": layout,
    }
    groups = {"group_0": group}
    if folded:
        # a target that is a name comes before one that is a class
        groups["group_1"] = group | {"targets": [f"re:.*{re.escape(end)}$" for end in folded]}
    if rotation:
        groups["group_0"] = group | {"weights": weights | {ROTATION_KEY: rotation}}
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "quantization_status": "compressed",
        "config_groups": groups,
        "kv_cache_scheme": None,
        "ignore": ignored,
    }


def hk_config(
    recipe: Recipe, activations: str, ignored: list[str], rotation: int
) -> dict[str, Any]:
    """The `quantization_config` of HK's own method, for what Quark's cannot say is rotated.

    HK registers the method with engines (`hk_backend.engine.linear.options`). Quark's readers skip
    unknown fields and would serve a rotated weight as if it were not; they refuse this method.
    """
    return {
        "quant_method": f"hk_{recipe.format.partition('_')[0]}",
        "format": recipe.format,
        "activations": activations,
        "rotation": rotation,
        "ignore": ignored,
    }


QUARK_DTYPES = {
    "mxfp8": "fp8_e4m3",
    "mxfp6_e2m3": "fp6_e2m3",
    "mxfp6_e3m2": "fp6_e3m2",
    "mxfp4": "fp4",
}
"""Quark's names of the elements of MX formats."""


def quark_config(recipe: Recipe, activations: str, ignored: list[str]) -> dict[str, Any]:
    """The `quantization_config` of Quark's exporter for OCP MX."""
    tensor = {
        "qscheme": "per_group",
        "group_size": MX_BLOCK,
        "ch_axis": -1,
        "scale_format": "e8m0",
        "round_method": "half_even",
        "symmetric": None,
    }
    format = FORMATS[recipe.format]
    of_inputs = format.of_activations(activations)
    weight = tensor | {"dtype": QUARK_DTYPES[format.name], "is_dynamic": False}
    inputs = of_inputs and tensor | {"dtype": QUARK_DTYPES[of_inputs.name], "is_dynamic": True}
    return {
        "quant_method": "quark",
        "global_quant_config": {
            "weight": weight,
            "input_tensors": inputs,
            "output_tensors": None,
            "bias": None,
        },
        "layer_quant_config": {},
        "layer_type_quant_config": {},
        "exclude": ignored,
        "export": {
            "kv_cache_group": [],
            "min_kv_scale": 0.0,
            "pack_method": "reorder",
            "weight_format": "real_quantized",
            "weight_merge_groups": None,
        },
    }
