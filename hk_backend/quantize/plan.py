"""Plans which tensors go to which file, from the settings alone, before anything is computed."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.recipe import Recipe
from hk_backend.quantize.source import MERGED, Source, SourceTensor
from hk_backend.quantize.tensor import StoredTensor
from hk_backend.reference.rotation import ROTATIONS
from hk_backend.terms.weight_format import FP8_BLOCK


@dataclass(frozen=True)
class Item:
    """A tensor of the source, and the tensors that it becomes.

    `layer`: name of the quantised layer; empty: the tensor stays as it is. `stored`: the layer's
    codes and scales; empty: the tensor stays as it is.
    """

    source: SourceTensor
    layer: str
    stored: tuple[StoredTensor, ...]

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.stored) or self.source.nbytes

    @property
    def names(self) -> list[str]:
        """Names of the tensors in the output."""
        return [f"{self.layer}.{part.name}" for part in self.stored] or [self.source.name]


PIECE_BYTES = 16 << 20
"""Bytes of a piece, the most that an interrupted run loses; one tensor may be larger."""


@dataclass(frozen=True)
class Shard:
    """A file of the output; `pieces`: its items in groups that are written one by one first."""

    file: str
    items: tuple[Item, ...]

    @property
    def pieces(self) -> list[list[Item]]:
        return grouped(self.items, PIECE_BYTES)

    @property
    def nbytes(self) -> int:
        return sum(item.nbytes for item in self.items)


@dataclass(frozen=True)
class Plan:
    shards: tuple[Shard, ...]
    ignored: tuple[str, ...]
    """Layers that could be quantised, but are left out by the user."""

    @property
    def nbytes(self) -> int:
        return sum(shard.nbytes for shard in self.shards)

    @property
    def layers(self) -> dict[str, Item]:
        """Items of the quantised layers, by the layer's name."""
        return {item.layer: item for shard in self.shards for item in shard.items if item.layer}


def make_plan(
    source: Source, recipe: Recipe, ignore: list[str], shard_bytes: int, rotation: int = 0
) -> Plan:
    """Group the output's tensors into files of at most `shard_bytes`; one tensor may be larger.

    Raises:
        QuantizeError: a layer's shape does not fit the format, or `ignore` does not fit the model.
    """
    ignored = ignored_layers(source.layers, ignore)
    quantized = [layer for layer in source.layers if layer not in ignored]
    if not quantized:
        raise QuantizeError("--ignore leaves nothing to quantise")
    check_shapes(source, recipe, quantized)
    check_rotation(source, rotation, quantized)
    weights = {f"{layer}.weight": layer for layer in quantized}
    items = []
    for name, tensor in source.tensors.items():
        layer = weights.get(name, "")
        items.append(Item(tensor, layer, recipe.stored(*tensor.shape) if layer else ()))
    groups = grouped(items, shard_bytes)
    shards = tuple(
        Shard(f"model-{i:05}-of-{len(groups):05}.safetensors", tuple(group))
        for i, group in enumerate(groups, 1)
    )
    return Plan(shards, tuple(ignored))


def grouped(items: Sequence[Item], limit: int) -> list[list[Item]]:
    """Group `items` into lists of at most `limit` bytes of output; one item may be larger."""
    groups: list[list[Item]] = [[]]
    for item in items:
        if groups[-1] and sum(part.nbytes for part in groups[-1]) + item.nbytes > limit:
            groups.append([])
        groups[-1].append(item)
    return groups


def ignored_layers(layers: list[str], patterns: list[str]) -> list[str]:
    """The layers that the shell-style `patterns` name, in the model's order."""
    for pattern in patterns:
        if not fnmatch.filter(layers, pattern):
            raise QuantizeError(
                f"--ignore {pattern}: no such layer; they are called {layers[0]} and the like "
                "(lm_head and the embeddings are never quantised)"
            )
    ignored = [
        layer for layer in layers if any(fnmatch.fnmatchcase(layer, item) for item in patterns)
    ]
    for layer in ignored:
        for merged in MERGED:
            name = next((name for name in merged if layer.endswith(name)), None)
            if name is None:
                continue
            siblings = [layer.removesuffix(name) + other for other in merged]
            kept = [sibling for sibling in siblings if sibling not in ignored]
            if kept:
                raise QuantizeError(
                    f"--ignore: {layer} but not {kept[0]}; engines run them as one layer, so "
                    "ignore all or none"
                )
    return ignored


def check_shapes(source: Source, recipe: Recipe, layers: list[str]) -> None:
    """Check that the format and the engines' merged layers can take every layer's shape."""
    before_others = tuple(name for merged in MERGED for name in merged[:-1])
    for layer in layers:
        n, k = source.tensors[f"{layer}.weight"].shape
        if k % recipe.row_multiple:
            raise QuantizeError(
                f"{layer} has {k} input channels; {recipe.name} needs a multiple of "
                f"{recipe.row_multiple}: leave it out with --ignore, or use --format fp8"
            )
        # the same check as vLLM's (`fp8_utils.validate_fp8_block_shape`)
        if recipe.granularity == "block" and layer.endswith(before_others) and n % FP8_BLOCK:
            raise QuantizeError(
                f"{layer} has {n} output channels, not a multiple of {FP8_BLOCK}: engines run it "
                "merged with its neighbour and refuse blocks that span both; use --format fp8"
            )


def check_rotation(source: Source, rotation: int, layers: list[str]) -> None:
    """Check that every layer's input channels are whole blocks of `rotation`."""
    for layer in layers:
        k = source.tensors[f"{layer}.weight"].shape[1]
        if rotation and k % rotation:
            fitting = [str(block) for block in ROTATIONS if k % block == 0]
            instead = f"--rotation {' or '.join(fitting)}, or " if fitting else ""
            raise QuantizeError(
                f"--rotation {rotation}: {layer} has {k} input channels, not a multiple of it; use "
                f"{instead}--method scales"
            )
