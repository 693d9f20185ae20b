"""Costs of the LM head in each format: the model's perplexity with it, and the time of a token.

The output file does not quantise the head (`hk_backend.ops.head_format`): the heads here are made
in the same way as by an engine that loads the file.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from hk_backend import ops
from hk_backend.ops.head_format import KEPT, head_rounding
from hk_backend.quantize.head import HEAD_RECIPES
from hk_backend.quantize.method import Method
from hk_backend.quantize.recipe import RECIPES
from hk_backend.quantize.served import ServedLinear
from hk_backend.quantize.source import EMBEDDING

if TYPE_CHECKING:
    from hk_backend.quantize.job import Job

EIGHT_BITS = "fp8"
"""Format of the 8-bit head that others are compared with."""
FORMAT_OF = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
CALLS = 20
"""Number of timed calls of each layer; the fastest counts, as other work slows some of them."""


def compared_heads(own: torch.nn.Module, job: Job) -> dict[str, torch.nn.Module]:
    """The heads whose cost is measured, by name.

    They are the model's `own` in 16 bits, one in 8 bits, one in the layers' format, and the one
    that the user asked for.
    """
    like_layers = [job.recipe.name] if job.recipe.name in HEAD_RECIPES else []
    names = dict.fromkeys([EIGHT_BITS, *like_layers, job.head])
    table = job.source.finite(job.source.head_table)
    return {KEPT: own} | {name: served_head(table, name) for name in names if name != KEPT}


def served_head(table: torch.Tensor, name: str) -> ServedLinear:
    """The head with weight `table` `[vocabulary, k]` in format `name`, which is not `KEPT`."""
    recipe = RECIPES[name]
    activations, rotation = head_rounding(recipe.format, table.shape[1])
    method = Method("scales" if rotation else "rtn", rotation)
    codes, scales = method.quantize(method.target(table), recipe)
    packed = ops.pack_weight(
        codes, recipe.format, scales, activations=activations, rotation=rotation
    )
    return ServedLinear(packed, None)


def look_up_in(model: torch.nn.Module, head: torch.nn.Module) -> None:
    """Give the embedding of `model` the rows that a served `head` holds."""
    assert isinstance(head, ServedLinear)
    rows = ops.look_up(torch.arange(head.packed.n), head.packed, torch.float32)
    table = model.get_submodule(EMBEDDING)
    table.weight = torch.nn.Parameter(rows, requires_grad=False)


def costs(
    model: torch.nn.Module,
    job: Job,
    heads: Mapping[str, torch.nn.Module],
    perplexities: Mapping[str, float],
) -> dict[str, Any]:
    """The report's entry on heads.

    It has each head's perplexity, bytes of its packed weight, and microseconds of one token on this
    machine; and the microseconds of all other layers of `model`.
    """
    table = job.source.read(job.source.head_table)
    packed = {
        name: getattr(head, "packed", None) or ops.pack_weight(table, FORMAT_OF[table.dtype])
        for name, head in heads.items()
    }
    times = microseconds([*_layers(model, table.dtype), *packed.values()], table.dtype)
    of_heads = times[-len(packed) :]
    found = {
        name: {"perplexity": perplexities[name], "bytes": weight.nbytes, "microseconds": time}
        for (name, weight), time in zip(packed.items(), of_heads, strict=True)
    }
    return {"layers_microseconds": sum(times[: -len(packed)]), "formats": found}


def microseconds(weights: Sequence[ops.PackedWeight], dtype: torch.dtype) -> list[float]:
    """The shortest time of `linear` for one row in `dtype` with each of `weights` on this machine.

    The weights take turns like a model's layers: those that the cache cannot hold are read from
    memory again.
    """
    rows = [torch.ones(1, weight.k, dtype=dtype) for weight in weights]
    best = [math.inf] * len(weights)
    for _ in range(CALLS):
        for i, (x, weight) in enumerate(zip(rows, weights, strict=True)):
            start = time.perf_counter()
            ops.linear(x, weight)
            best[i] = min(best[i], time.perf_counter() - start)
    return [seconds * 1e6 for seconds in best]


def _layers(model: torch.nn.Module, dtype: torch.dtype) -> Iterator[ops.PackedWeight]:
    """Packed weights of all linear layers but the head, in the order of calls."""
    for name, layer in model.named_modules():
        if isinstance(layer, ServedLinear):
            yield layer.packed
        elif isinstance(layer, torch.nn.Linear) and name != "lm_head":
            yield ops.pack_weight(layer.weight.detach().to(dtype), FORMAT_OF[dtype])
