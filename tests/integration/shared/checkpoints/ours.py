"""Checkpoints that HK makes: by `hk-backend quantize --fold all`, and by `--quantization hk_mxfp4`.

tests/quantize/test_folding.py holds that a folded checkpoint means the original. Here the truth is
for an engine that reads the folded one.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from hk_backend import reference
from hk_backend.quantize.job import Job
from hk_backend.quantize.method import Method
from hk_backend.quantize.recipe import RECIPES
from hk_backend.quantize.settings import Settings
from tests.integration.shared.checkpoints.scheme import Layer, Made, Scheme, Tensors, write

ROTATION = 64
NOT_FOLDED = "mlp.down_proj"


def make_folded(source: Path, folder: Path) -> Made:
    """Fold and quantise the Llama in `source`, after its norms got gains like a trained model's."""
    made = Made(folder / "folded", folder / "folded-truth")
    if made.checkpoint.is_dir():
        return made
    tensors, generator = load_file(source / "model.safetensors"), torch.Generator().manual_seed(5)
    for name in [name for name in tensors if name.endswith("norm.weight")]:
        tensors[name] = 1 + 0.5 * torch.randn(len(tensors[name]), generator=generator)
    trained = folder / "with-gains"
    write(source, trained, tensors, {})
    Job(trained, made.checkpoint, Settings("mxfp4", rotation=ROTATION, fold="all")).run()
    [file] = made.checkpoint.glob("*.safetensors")
    held: Tensors = load_file(file)
    rounding = {}
    for name in [name for name in held if name.endswith(".weight_packed")]:
        layer = name.removesuffix(".weight_packed")
        codes, scales = held.pop(name), held.pop(f"{layer}.weight_scale")
        held[f"{layer}.weight"] = reference.dequantize(codes, "mxfp4", scales).float()
        turned = layer.endswith(NOT_FOLDED)
        rounding[layer] = {
            "activations": "mx_rotated" if turned else "mx",
            "rotation": ROTATION if turned else 0,
            "format": "mxfp4",
            "input_scale": None,
        }
    write(source, made.truth, held, {})
    (made.truth / "activations.json").write_text(json.dumps(rounding))
    return made


def _layer(weight: torch.Tensor) -> Layer:
    """Quantise a weight as `hk-backend quantize --method rotated` does."""
    method = Method("rotated", ROTATION)
    codes, scales = method.quantize(method.target(weight), RECIPES["mxfp4"])
    return Layer({}, reference.dequantize(codes, "mxfp4", scales))


ONLINE = Scheme("online-hk_mxfp4", _layer, {}, "mx_rotated", "mxfp4", rotation=ROTATION)
