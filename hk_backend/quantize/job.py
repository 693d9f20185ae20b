"""One run of the command: inspects the model, quantises it by shards, completes the folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from hk_backend import __version__
from hk_backend.ops.head_format import KEPT, embedding_option, head_option
from hk_backend.quantize import plan
from hk_backend.quantize.calibrate import Calibration, calibration_windows
from hk_backend.quantize.calibrated import CalibratedLayers
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.folding import fold
from hk_backend.quantize.head import check_embedding, check_head
from hk_backend.quantize.method import Method
from hk_backend.quantize.output import CALIBRATED, SHARDS, Output, finished_settings
from hk_backend.quantize.plan import Item, Plan, Shard, make_plan
from hk_backend.quantize.recipe import RECIPES
from hk_backend.quantize.served import Serving
from hk_backend.quantize.settings import Settings
from hk_backend.quantize.source import Source, open_source
from hk_backend.quantize.stream import check_streams
from hk_backend.quantize.text import read_text, window_of
from hk_backend.terms.folds import FOLD_KEY, NONE

Advance = Callable[[str, int], None]
"""Function that is called after each tensor, with its name and its bytes in the source."""


@dataclass(frozen=True)
class LayerError:
    """Error of a quantised layer.

    `error`: relative error ||Q(W) - W|| / ||W|| in the Frobenius norm; 0 if W is zero.
    `objective`: for a calibrated layer, the value that `hk_backend.quantize.gptq` minimises, with
    rounding to nearest and with the result.
    """

    layer: str
    error: float
    objective: tuple[float, float] | None = None


class Job:
    """A quantisation of `model` into `out`. The constructor checks everything, `run` writes."""

    def __init__(self, model: Path, out: Path, settings: Settings) -> None:
        self.recipe = settings.recipe()
        self.activations = settings.activations or self.recipe.activations[0]
        if out.resolve() == model.resolve():
            raise QuantizeError(f"{out}: the output folder must not be the model's")
        self.source, self.method = self._folded(open_source(model), settings)
        self.head, self.embedding = settings.head, settings.embedding
        check_head(self.source, self.head)
        check_embedding(self.source, self.embedding, self.head)
        self.serving = Serving(self.recipe, self.activations, self.method.rotation)
        remembered: dict[str, Any] = {
            "model": str(model.resolve()),
            "format": settings.format,
            "activations": self.activations,
            "ignore": settings.ignore,
            "method": self.method.name,
            "rotation": self.method.rotation,
            "fold": self.method.fold,
            "head": self.head,
            "embedding": self.embedding,
            "calibration": "",
        }
        text = None
        if settings.calibration:  # one token to calibrate on, two to measure
            text = read_text(settings.calibration, model, self.source.vocabulary, least=3)
            remembered["calibration"] = text.sha256
        finished = finished_settings(out)
        # a finished output stays as it is, whatever the size of its files
        keeps = remembered.items() <= finished.items()
        shard_bytes = finished["shard_bytes"] if keeps else settings.shard_bytes
        remembered["shard_bytes"] = shard_bytes
        self.plan: Plan = make_plan(
            self.source, self.recipe, settings.ignore, shard_bytes, self.method.rotation
        )
        self._is_finished = keeps
        self.out = Output(out, remembered, self.source.fingerprint, plan.PIECE_BYTES)
        self.calibrated: CalibratedLayers | None = None
        if text:
            windows = calibration_windows(text.tokens, window_of(self.source))
            if not self._is_finished:
                check_streams(self.source)
            calibration = Calibration(self.source, windows, self.method, self.serving)
            self.calibrated = CalibratedLayers(calibration, self.plan, self.out)

    def _folded(self, source: Source, settings: Settings) -> tuple[Source, Method]:
        method, layers = settings.chosen_method(), source.layers
        ignored = plan.ignored_layers(layers, settings.ignore)
        layers = [layer for layer in layers if layer not in ignored]
        source, name, ends = fold(source, self.recipe, method.rotation, settings.fold, layers)
        return source, replace(method, fold=name, folded=ends)

    def serving_of(self, layer: str) -> Serving:
        """The rounding and the rotation with which `layer` is served."""
        return replace(self.serving, rotation=self.method.while_serving(layer))

    @property
    def source_bytes(self) -> int:
        """Bytes of all tensors of the model."""
        return sum(tensor.nbytes for tensor in self.source.tensors.values())

    @property
    def work_bytes(self) -> int:
        """Total bytes of progress that `run` reports; calibrated layers count twice."""
        layers = self.plan.layers.values() if self.calibrated else ()
        return self.source_bytes + sum(item.source.nbytes for item in layers)

    @property
    def calibrated_tokens(self) -> int:
        """Number of tokens at the text's beginning that calibration saw."""
        return self.calibrated.tokens if self.calibrated else 0

    def run(self, advance: Advance = lambda name, count: None) -> None:
        """Lock the output folder and write it.

        Raises:
            QuantizeError: see `held` and `write`.
        """
        with self.held():
            self.write(advance)

    def held(self) -> AbstractContextManager[None]:
        """Lock the output folder for this run.

        Raises:
            QuantizeError: the folder belongs to another run, or the disk is too full.
        """
        joined = {shard.file: shard.nbytes for shard in self.plan.shards if len(shard.pieces) > 1}
        twice = self.plan.layers.values() if self.calibrated and not self._is_finished else ()
        return self.out.opened(self.plan.nbytes + sum(item.nbytes for item in twice), joined)

    def write(self, advance: Advance = lambda name, count: None) -> None:
        """Write every shard that is not there yet, then the index and config.json last.

        Raises:
            QuantizeError: a file could not be read or written, or a weight is not finite.
        """
        if self.calibrated:
            whole = all(self.out.has(shard.file) for shard in self.plan.shards)
            self.calibrated.write(advance, needed=not whole)
        for shard in self.plan.shards:
            if self.out.has(shard.file):
                advance(shard.file, sum(item.source.nbytes for item in shard.items))
            elif len(shard.pieces) == 1:
                self.out.write_shard(shard.file, *self._quantized(shard.items, advance))
            else:
                self._write_pieces(shard, advance)
        self._finish()

    def kept(self) -> str:
        """Text with the numbers of files and layers that are on the disk."""
        files = sum(self.out.has(shard.file) for shard in self.plan.shards)
        report = self.out.report
        whole = (*report[SHARDS].values(), *report[CALIBRATED].values())
        records = [kept["layers"] for kept in whole]
        records += [piece for kept in report["pieces"].values() for piece in kept["layers"]]
        layers = {layer["layer"] for each in records for layer in each}
        of = len(self.plan.layers)
        return f"{files} of {len(self.plan.shards)} files and {len(layers)} of {of} layers kept"

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
        """The tensors that `items` become, and the report's records of their layers."""
        tensors: dict[str, torch.Tensor] = {}
        layers: list[dict[str, Any]] = []
        for item in items:
            if item.layer:
                parts, record = self._quantize(item)
                layers.append(record)
            else:
                parts = [self.source.read(item.source.name).to(item.source.dtype)]
            tensors |= zip(item.names, parts, strict=True)
            advance(item.source.name, item.source.nbytes)
        return tensors, layers

    def _quantize(self, item: Item) -> tuple[list[torch.Tensor], dict[str, Any]]:
        if self.calibrated:
            return self.calibrated.read(item)
        target = self.method.target(self.source.finite(item.source.name), item.layer)
        codes, scales = self.method.quantize(target, self.recipe)
        error = self.recipe.relative_error(codes, scales, target)
        return [codes, scales], {"layer": item.layer, "error": error}

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
        ignored = [*self.source.other_matrices, *self.plan.ignored]
        quantization = self.recipe.quantization_config(
            self.activations, ignored, self.method.rotation, self.method.folded
        )
        method = quantization["quant_method"]
        if self.method.fold != NONE:
            quantization |= {FOLD_KEY: self.method.fold}
        if self.head != KEPT:
            quantization |= {head_option(method): RECIPES[self.head].format}
        if self.embedding != KEPT:
            quantization |= {embedding_option(method): self.embedding}
        self.out.write_json(
            "config.json", self.source.config | {"quantization_config": quantization}
        )
        rule = self.method.scale_rule(self.recipe)
        self.out.report |= {"finished": True, "hk_backend": __version__, "scale_rule": rule}
        self.out.report |= {"source_bytes": self.source_bytes, "bytes": self.plan.nbytes}
        self.out.drop_calibrated()
        self.out.save_report()

    def layer_errors(self) -> list[LayerError]:
        """The error of every layer that `run` quantised, worst first."""
        shards = self.out.report[SHARDS].values()
        found = [LayerError(**layer) for shard in shards for layer in shard["layers"]]
        return sorted(found, key=lambda each: (-each.error, each.layer))
