"""One quantisation scheme: a checkpoint's tensors for a merged layer, and for a whole model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from hk_backend.reference import dequantize_rows
from tests.ops import linear_cases

Tensors = dict[str, torch.Tensor]
Shards = dict[str, list[torch.Tensor]]
K, WIDTHS = 256, [256, 128, 128]
"""Input features of a merged layer, and output features of its three shards."""

MERGED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Layers that engines run as one: with static activations the largest input scale counts."""
CALIBRATION = list(range(100, 228))
FP8_MAX = 448.0


@dataclass(frozen=True)
class Layer:
    """A quantised weight: tensors by their suffix in the file, and the values they stand for."""

    tensors: Tensors
    values: torch.Tensor


@dataclass(frozen=True)
class Scheme:
    """A tool's way to quantise a linear layer, and its checkpoint's entries about that.

    `activations`: as in `hk_backend.ops.pack_weight`; `format`: of the codes. `rotation`: channels
    of the input that are rotated together; `layer` has rotated the weight. `static`: input scales
    are in the file, as `input_scale`. `dtypes`: the model's dtypes that vLLM accepts. `per_batch`:
    activation scales span the whole batch, so that an answer depends on what else is computed with
    it.
    """

    name: str
    layer: Callable[[torch.Tensor], Layer]
    config: dict[str, Any]
    activations: str = "none"
    format: str = "fp8_e4m3fn"
    static: bool = False
    rotation: int = 0
    dtypes: tuple[str, ...] = ("float16",)

    @property
    def scale_kind(self) -> str:
        """Name of what shares a weight scale: "mx" for 32 neighbours, a block, a channel."""
        return next((kind for kind in ("mx", "block") if kind in self.name), "channel")

    @property
    def per_batch(self) -> bool:
        return self.activations == "tensor" and not self.static

    # -- one merged layer

    @cached_property
    def _made(self) -> list[Layer]:
        return [self.layer(weight) for weight in shards_of()]

    def tensors(self) -> Shards:
        """A merged layer's tensors in a checkpoint: by suffix, one for each shard."""
        names = self._made[0].tensors
        found = {name: [each.tensors[name].clone() for each in self._made] for name in names}
        if self.static:
            found["input_scale"] = [torch.tensor(scale) for scale in (0.01, 0.025, 0.02)]
        return found

    @property
    def weight(self) -> str:
        """The suffix of the codes' tensor."""
        return next(name for name in self._made[0].tensors if not name.startswith("weight_scale"))

    @property
    def scale(self) -> str:
        return next(name for name in self._made[0].tensors if name.startswith("weight_scale"))

    def layers(self, x: torch.Tensor, shards: Shards) -> list[linear_cases.Layer]:
        """The product that each shard is to compute, by its own weight scale.

        All shards use one input scale.
        """
        static = shards.get("input_scale")
        largest = None if static is None else torch.stack(static).max().reshape(1)
        of_each = zip(shards[self.weight], shards[self.scale], strict=True)
        return [
            linear_cases.Layer(
                x,
                weight,
                self.format,
                scale[:, 0, :, 0] if scale.ndim == 4 else scale,
                self.activations,
                largest,
                rotation=self.rotation,
            )
            for weight, scale in of_each
        ]

    def of_codes(
        self, codes: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype
    ) -> list[linear_cases.Layer]:
        """The product that each shard is to compute, in `dtype`, from rounded activations."""
        shards = self.layers(dequantize_rows(codes, scales).flatten(0, -2), self.tensors())
        for shard in shards:
            shard.activations, shard.input_scale, shard.out_dtype = "none", None, dtype
        return shards

    def expected(self, x: torch.Tensor, shards: Shards) -> torch.Tensor:
        """The reference's output, each shard by its own scale."""
        return torch.cat([layer.exact() for layer in self.layers(x, shards)], -1)


@cache
def shards_of() -> list[torch.Tensor]:
    """Weights of a merged layer's shards, whose rows, columns and shards differ much in size.

    One scale for all would lose most of the third shard's values.
    """
    generator = torch.Generator().manual_seed(0)
    rows, columns = torch.linspace(0.5, 2.0, max(WIDTHS))[:, None], torch.linspace(0.5, 2.0, K)
    return [
        torch.randn(width, K, generator=generator) * rows[:width] * columns * size
        for width, size in zip(WIDTHS, (0.3, 1.0, 0.08), strict=True)
    ]


def x_of(k: int = K) -> torch.Tensor:
    return torch.randn(9, k, generator=torch.Generator().manual_seed(1)).bfloat16()


@dataclass(frozen=True)
class Made:
    """The two folders of a scheme."""

    checkpoint: Path
    truth: Path


def make(scheme: Scheme, source: Path, folder: Path) -> Made:
    """Quantise the Llama in `source`, once; every layer gets scales of its own."""
    return make_by_layer(scheme.name, lambda layer: scheme, scheme.config, source, folder)


def make_by_layer(
    checkpoint: str,
    scheme_of: Callable[[str], Scheme],
    config: dict[str, Any],
    source: Path,
    folder: Path,
) -> Made:
    """Quantise it with a scheme for each linear layer; `config` is the whole checkpoint's.

    Args:
        checkpoint: name of the model's folder in `folder`.
        scheme_of: from a layer's name in the file to its scheme.
    """
    made = Made(folder / checkpoint, folder / f"{checkpoint}-truth")
    if made.checkpoint.is_dir():
        return made
    tensors = load_file(source / "model.safetensors")
    layers = [name.removesuffix(".weight") for name in tensors if name.endswith("_proj.weight")]
    values, rounding = dict(tensors), {}
    static = any(scheme_of(name).static for name in layers)
    scales = input_scales(source, layers) if static else {}
    for name in layers:
        scheme = scheme_of(name)
        quantized = scheme.layer(tensors.pop(f"{name}.weight").float())
        values[f"{name}.weight"] = quantized.values.float().contiguous()
        tensors |= {f"{name}.{suffix}": part for suffix, part in quantized.tensors.items()}
        if scheme.static:
            tensors[f"{name}.input_scale"] = torch.tensor(scales[name])
        rounding[name] = {
            "activations": scheme.activations,
            "rotation": scheme.rotation,
            "format": scheme.format,
            "input_scale": max(scales[sibling] for sibling in merged_with(name, scales))
            if scheme.static
            else None,
        }
    write(source, made.truth, values, {})
    (made.truth / "activations.json").write_text(json.dumps(rounding))
    write(source, made.checkpoint, tensors, {"quantization_config": config})
    return made


def write(source: Path, out: Path, tensors: Tensors, config: dict[str, Any]) -> None:
    shutil.copytree(source, out, ignore=shutil.ignore_patterns("*.safetensors"))
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
    plain = json.loads((source / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(plain | config))


def merged_with(layer: str, known: dict[str, float]) -> list[str]:
    """The layers that vLLM merges with `layer`, itself included."""
    parent, _, name = layer.rpartition(".")
    group = next((group for group in MERGED if name in group), (name,))
    return [f"{parent}.{sibling}" for sibling in group]


def input_scales(source: Path, layers: list[str]) -> dict[str, float]:
    """Input scales as a calibrating tool finds them: each layer's largest input over some tokens.

    Tools that calibrate each layer alone give q, k and v scales that differ; so do these.
    """
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    largest: dict[str, float] = {}

    def remember(name: str) -> Callable[[Any, Any], None]:
        def hook(module: Any, inputs: Any) -> None:
            largest[name] = float(inputs[0].abs().max())

        return hook

    for name in layers:
        model.get_submodule(name).register_forward_pre_hook(remember(name))
    with torch.inference_mode():
        model(torch.tensor([CALIBRATION]))
    shrunk = {"k_proj": 0.75, "v_proj": 0.875, "up_proj": 0.625}
    return {
        name: size / FP8_MAX * shrunk.get(name.rpartition(".")[2], 1.0)
        for name, size in largest.items()
    }
