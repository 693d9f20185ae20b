"""Folds rotations of layers' inputs into neighbouring weights: the values of `--fold`.

A folded rotation costs nothing while serving.

`heads` folds o_proj's rotation. Attention's output is a weighted sum of v_proj's outputs, head by
head: if v_proj's rows are rotated within each head, o_proj gets its input rotated.

`all` also folds the rotations of layers that read the residual stream, by rotating the stream
(https://arxiv.org/abs/2404.00456). The embedding, o_proj and down_proj then write rotated values. A
norm divides by a root mean square, which no rotation changes. Its gains move into the weights that
read it, the head's included. Only down_proj, whose input is a product of two layers, keeps its
rotation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch

from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.recipe import Recipe
from hk_backend.quantize.source import (
    EMBEDDING,
    HEAD,
    KNOWN,
    LAST_NORM,
    LAYER_NORMS,
    LAYER_TENSOR,
    MERGED,
    PROJECTIONS,
    Source,
)
from hk_backend.reference.rotation import rotated
from hk_backend.terms.folds import ALL, HEADS, NONE

V_PROJ, O_PROJ, DOWN_PROJ = (f"{room}_proj" for room in ("self_attn.v", "self_attn.o", "mlp.down"))
READ_BY = dict(zip(LAYER_NORMS, MERGED, strict=True))
"""Projections that read each norm of a decoder layer, by the norm's name."""
ROWS = 4096
"""Number of rows that are rotated at a time, since an embedding has many."""


@dataclass(frozen=True)
class FoldedSource(Source):
    """A checkpoint whose tensors include the folded rotations; up to rounding the same model.

    `heads`: decoder layers ("model.layers.0.") whose v_proj rotates the input of their o_proj.
    `residual`: whether the residual stream is rotated.
    """

    rotation: int
    heads: frozenset[str]
    residual: bool

    def read(self, name: str) -> torch.Tensor:
        """Read a tensor with its rotations; a projection's weight is returned as float32.

        Raises QuantizeError if its file was damaged since it was opened.
        """
        tensor = super().read(name)
        owner, _, kind = name.rpartition(".")
        if self.residual and _is_norm(owner):
            return torch.ones_like(tensor)
        values = tensor
        if kind == "weight":
            values = self._reading(values, owner)
        if self._writes(owner):
            values = _turned(values.T, self.rotation).T if kind == "weight" else values
            values = _turned(values[None], self.rotation)[0] if kind == "bias" else values
        is_projection = kind == "weight" and owner.endswith(PROJECTIONS)
        return values.to(torch.float32 if is_projection else tensor.dtype).contiguous()

    def _reading(self, weight: torch.Tensor, owner: str) -> torch.Tensor:
        """The `weight` `[n, k]` of `owner` for the inputs that it gets, rotated or not."""
        norm = _norm_before(owner) if self.residual else ""
        if norm:
            weight = weight.float() * super().read(f"{norm}.weight").float()
        from_v_proj = owner.endswith(O_PROJ) and owner.removesuffix(O_PROJ) in self.heads
        is_rows = self.residual and owner == EMBEDDING  # looked up, not multiplied with
        return _turned(weight, self.rotation) if norm or from_v_proj or is_rows else weight

    def _writes(self, owner: str) -> bool:
        """Whether the layers that read the outputs of `owner` expect them rotated."""
        if self.residual and owner.endswith((O_PROJ, DOWN_PROJ)):
            return True
        return owner.endswith(V_PROJ) and owner.removesuffix(V_PROJ) in self.heads


def fold(
    source: Source, recipe: Recipe, rotation: int, wanted: str, layers: Sequence[str]
) -> tuple[Source, str, tuple[str, ...]]:
    """Fold rotations into the weights of `source`.

    Returns the folded source, its value of `FOLDS`, and the ends of the names of the layers whose
    inputs are then rotated already.

    Args:
        wanted: one of `FOLDS`; "": `heads` where that is possible.
        layers: names of the layers that are quantised.

    Raises:
        QuantizeError: `wanted` is not possible; the message says why.
    """
    why = why_not_heads(source, recipe, rotation, layers)
    if wanted == HEADS and why:
        raise QuantizeError(f"--fold {HEADS}: {why}")
    if wanted == ALL and (why_not := why_not_all(source, recipe, rotation)):
        raise QuantizeError(f"--fold {ALL}: {why_not}")
    found = wanted if wanted in (NONE, ALL) else NONE if why else HEADS
    if found == NONE:
        return source, found, ()
    heads = frozenset() if why else _of(layers, O_PROJ)
    ends: tuple[str, ...] = (O_PROJ,) if heads else ()
    if found == ALL:
        ends = tuple(name for readers in READ_BY.values() for name in readers) + ends
    known = {field.name: getattr(source, field.name) for field in fields(Source)}
    return FoldedSource(**known, rotation=rotation, heads=heads, residual=found == ALL), found, ends


def why_not_heads(source: Source, recipe: Recipe, rotation: int, layers: Sequence[str]) -> str:
    """Reason why o_proj's rotation cannot be folded into v_proj; empty if it can."""
    if why := _why_none(source, recipe, rotation):
        return why
    config = source.config
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    if head % rotation:
        return f"a head's {head} channels are not whole blocks of {rotation}"
    if _of(layers, V_PROJ) != _of(layers, O_PROJ):
        return "--ignore leaves out one of v_proj and o_proj"
    return "" if _of(layers, O_PROJ) else "--ignore leaves out every o_proj"


def why_not_all(source: Source, recipe: Recipe, rotation: int) -> str:
    """Reason why the residual stream cannot be rotated; empty if it can."""
    if why := _why_none(source, recipe, rotation):
        return why
    hidden = source.config["hidden_size"]
    if hidden % rotation:
        return f"the residual stream's {hidden} channels are not whole blocks of {rotation}"
    if others := source.other_matrices:
        return f"{others[0]} reads the residual stream, too, and stays as it is; use --fold {HEADS}"
    if source.head_table != f"{HEAD}.weight":
        return (
            "the head shares the embedding's table, and only the head's would take the last norm's "
            f"gains; use --fold {HEADS}"
        )
    return ""


def _why_none(source: Source, recipe: Recipe, rotation: int) -> str:
    """Reason why nothing of this model or format can be folded."""
    if not rotation:
        return "nothing is rotated"
    if recipe.quant_method != "compressed-tensors":
        return f"{recipe.name} has one rotation for all layers"
    kind = source.config.get("model_type")
    return "" if kind in KNOWN else f"model_type {kind!r}: expected one of {', '.join(KNOWN)}"


def _of(layers: Sequence[str], end: str) -> frozenset[str]:
    """Names without `end`, of the `layers` whose names end with it."""
    return frozenset(layer.removesuffix(end) for layer in layers if layer.endswith(end))


def _is_norm(owner: str) -> bool:
    """Whether `owner` normalises the residual stream; Qwen 3 also has norms of heads."""
    match = LAYER_TENSOR.fullmatch(f"{owner}.weight")
    return owner == LAST_NORM or (match is not None and match[2] in READ_BY)


def _norm_before(owner: str) -> str:
    """The norm whose outputs are the inputs of `owner`; empty if there is none."""
    if owner == HEAD:
        return LAST_NORM
    for norm, readers in READ_BY.items():
        for name in readers:
            if owner.endswith(name):
                return owner.removesuffix(name) + norm
    return ""


def _turned(rows: torch.Tensor, rotation: int) -> torch.Tensor:
    """The `rows` `[n, k]` rotated along K, float32."""
    parts = [rotated(part, rotation).float() for part in rows.split(ROWS)]
    return torch.cat(parts)
