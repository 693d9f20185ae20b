"""One run of the command: inspect the model, quantise it shard by shard, finish the folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from hk_backend import __version__
from hk_backend.quantize import plan
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.output import Output, finished_settings
from hk_backend.quantize.plan import Item, Plan, Shard, make_plan
from hk_backend.quantize.recipe import RECIPES, Recipe
from hk_backend.quantize.source import Source, open_source

Advance = Callable[[str, int], None]
"""Told after each tensor: its name, and how many bytes of the source that were."""


@dataclass(frozen=True)
class Settings:
    """What the output depends on besides the model.

    `activations` "": the format's default. `ignore`: shell-style patterns of layer names.
    `shard_bytes`: of a file, and so about the memory that a run takes.
    """

    format: str
    activations: str = ""
    ignore: list[str] = field(default_factory=list)
    shard_bytes: int = 2 << 30

    def recipe(self) -> Recipe:
        """Raises QuantizeError for a format or activations that are not offered."""
        recipe = RECIPES.get(self.format)
        if recipe is None:
            raise QuantizeError(f"format {self.format!r}: choose one of {', '.join(RECIPES)}")
        if self.activations and self.activations not in recipe.activations:
            raise QuantizeError(
                f"activations {self.activations!r}: {self.format} knows "
                f"{' and '.join(recipe.activations)}"
            )
        if self.shard_bytes < 1:
            raise QuantizeError(
                f"--shard-size {self.shard_bytes / 1e9:g}: expected a positive number"
            )
        return recipe


@dataclass(frozen=True)
class LayerError:
    """`error`: relative, ||Q(W) - W|| / ||W|| in the Frobenius norm; 0 if W is zero."""

    layer: str
    error: float


class Job:
    """From `model` to `out`; the constructor looks and refuses, `run` writes."""

    def __init__(self, model: Path, out: Path, settings: Settings) -> None:
        self.recipe = settings.recipe()
        self.activations = settings.activations or self.recipe.activations[0]
        if out.resolve() == model.resolve():
            raise QuantizeError(f"{out}: the output folder must not be the model's")
        self.source: Source = open_source(model)
        remembered: dict[str, Any] = {
            "model": str(model.resolve()),
            "format": settings.format,
            "activations": self.activations,
            "ignore": settings.ignore,
        }
        finished = finished_settings(out)
        # what is finished stays as it is, whatever the size of its files
        keeps = remembered.items() <= finished.items()
        shard_bytes = finished["shard_bytes"] if keeps else settings.shard_bytes
        remembered["shard_bytes"] = shard_bytes
        self.plan: Plan = make_plan(self.source, self.recipe, settings.ignore, shard_bytes)
        self.out = Output(out, remembered, self.source.fingerprint, plan.PIECE_BYTES)

    @property
    def source_bytes(self) -> int:
        """What `run` reports in all."""
        return sum(tensor.nbytes for tensor in self.source.tensors.values())

    def run(self, advance: Advance = lambda name, count: None) -> None:
        """Hold the folder, and write.

        Raises:
            QuantizeError: see `held` and `write`.
        """
        with self.held():
            self.write(advance)

    def held(self) -> AbstractContextManager[None]:
        """Hold the output folder alone.

        Raises:
            QuantizeError: it is not this run's to write into, or the disk is too full.
        """
        joined = {shard.file: shard.nbytes for shard in self.plan.shards if len(shard.pieces) > 1}
        return self.out.opened(self.plan.nbytes, joined)

    def write(self, advance: Advance = lambda name, count: None) -> None:
        """Write every shard that is not there yet, then the index and config.json last.

        Raises:
            QuantizeError: a file could not be read or written, or a weight is not finite.
        """
        for shard in self.plan.shards:
            if self.out.has(shard.file):
                advance(shard.file, sum(item.source.nbytes for item in shard.items))
            elif len(shard.pieces) == 1:
                self.out.write_shard(shard.file, *self._quantized(shard.items, advance))
            else:
                self._write_pieces(shard, advance)
        self._finish()

    def kept(self) -> str:
        """How much of the work is on the disk."""
        files = sum(self.out.has(shard.file) for shard in self.plan.shards)
        of_pieces = sum(
            len(piece) for kept in self.out.report["pieces"].values() for piece in kept["layers"]
        )
        layers = len(list(self._remembered())) + of_pieces
        of = sum(1 for shard in self.plan.shards for item in shard.items if item.layer)
        return f"{files} of {len(self.plan.shards)} files and {layers} of {of} layers kept"

    def _write_pieces(self, shard: Shard, advance: Advance) -> None:
        for number, piece in enumerate(shard.pieces):
            if self.out.has_piece(shard.file, number):
                advance(shard.file, sum(item.source.nbytes for item in piece))
            else:
                self.out.write_piece(shard.file, number, *self._quantized(piece, advance))
        self.out.join_pieces(shard.file)

    def _quantized(
        self, items: Sequence[Item], advance: Advance
    ) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
        """The tensors that `items` become, and what is remembered of their layers."""
        tensors: dict[str, torch.Tensor] = {}
        layers: list[dict[str, Any]] = []
        for item in items:
            weight = self.source.read(item.source.name)
            if item.layer:
                parts, error = self._quantize(item, weight)
                layers.append({"layer": item.layer, "error": error})
            else:
                parts = [weight]
            tensors |= zip(item.names, parts, strict=True)
            advance(item.source.name, item.source.nbytes)
        return tensors, layers

    def _quantize(self, item: Item, weight: torch.Tensor) -> tuple[list[torch.Tensor], float]:
        if not weight.isfinite().all():
            raise QuantizeError(
                f"{self.source.directory}: {item.source.name} contains NaN or infinity"
            )
        codes, scales = self.recipe.quantize(weight)
        exact = weight.float()
        norm = exact.norm(dtype=torch.float64)
        difference = (self.recipe.dequantize(codes, scales) - exact).norm(dtype=torch.float64)
        return [codes, scales], float(difference / norm) if norm else 0.0

    def _finish(self) -> None:
        for path in self.source.other_files():
            self.out.copy(path)
        self.out.write_json(
            "model.safetensors.index.json",
            {
                "metadata": {"total_size": self.plan.nbytes},
                "weight_map": {
                    name: shard.file
                    for shard in self.plan.shards
                    for item in shard.items
                    for name in item.names
                },
            },
        )
        quantization = self.recipe.quantization_config(self.activations, list(self.plan.ignored))
        self.out.write_json(
            "config.json", self.source.config | {"quantization_config": quantization}
        )
        self.out.report |= {"finished": True, "hk_backend": __version__}
        self.out.report |= {"source_bytes": self.source_bytes, "bytes": self.plan.nbytes}
        self.out.save_report()

    def layer_errors(self) -> list[LayerError]:
        """Of every layer that `run` quantised, worst first."""
        return sorted(self._remembered(), key=lambda found: (-found.error, found.layer))

    def _remembered(self) -> Iterator[LayerError]:
        for record in self.out.report["shards"].values():
            for layer in record["layers"]:
                yield LayerError(**layer)
