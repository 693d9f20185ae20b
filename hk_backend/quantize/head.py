"""What the LM head costs in each format: the model's perplexity with it, and the time of a token.

The file keeps the head's table as it is (`hk_backend.ops.head_format`): these heads are made as an
engine makes them when it loads the file.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from hk_backend import ops
from hk_backend.ops.head_format import EMBEDDINGS, IN_HEAD, KEPT, head_rounding
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.method import Method
from hk_backend.quantize.recipe import RECIPES
from hk_backend.quantize.served import ServedLinear
from hk_backend.quantize.source import EMBEDDING, Source
from hk_backend.terms.weight_format import FORMATS

if TYPE_CHECKING:
    from hk_backend.quantize.job import Job

HEAD_RECIPES = tuple(name for name, recipe in RECIPES.items() if recipe.granularity != "block")
"""Values of `--head` besides `KEPT`."""
EIGHT_BITS = "fp8"
"""The 8-bit head that others are compared with."""
FORMAT_OF = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
CALLS = 20
"""Of each layer, of which the fastest counts: a machine does other things, too."""


def check_head(source: Source, name: str) -> None:
    """
    Raises:
        QuantizeError: `name` is no value of `--head`, or the model's head does not fit it, or
            contains NaN or infinity.
    """
    if name == KEPT:
        return
    if name not in HEAD_RECIPES:
        raise QuantizeError(f"--head {name}: choose one of {', '.join((KEPT, *HEAD_RECIPES))}")
    table, multiple = source.head_table, FORMATS[RECIPES[name].format].k_multiple
    k = source.tensors[table].shape[1]
    if k % multiple:
        raise QuantizeError(
            f"--head {name}: {table} has {k} input channels; {name} needs a multiple of {multiple}"
        )
    source.finite(table)


def check_embedding(source: Source, name: str, head: str) -> None:
    """
    Raises:
        QuantizeError: `name` is no value of `--embedding`, or does not fit the model or `head`.
    """
    if name not in EMBEDDINGS:
        raise QuantizeError(f"--embedding {name}: choose one of {', '.join(EMBEDDINGS)}")
    if name == IN_HEAD and head == KEPT:
        raise QuantizeError(f"--embedding {name} needs --head FORMAT: what it shares is packed")
    if name == IN_HEAD and source.head_table != f"{EMBEDDING}.weight":
        raise QuantizeError(f"--embedding {name}: the model's LM head has a table of its own")


def compared_heads(own: torch.nn.Module, job: Job) -> dict[str, torch.nn.Module]:
    """By name, the heads whose cost is measured: in 16 bits, which is the model's `own`, in 8 bits,
    like the layers, and as asked for."""
    like_layers = [job.recipe.name] if job.recipe.name in HEAD_RECIPES else []
    names = dict.fromkeys([EIGHT_BITS, *like_layers, job.head])
    table = job.source.finite(job.source.head_table)
    return {KEPT: own} | {name: served_head(table, name) for name in names if name != KEPT}


def served_head(table: torch.Tensor, name: str) -> ServedLinear:
    """The head of a `table` `[vocabulary, k]` in a format that is not `KEPT`."""
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
    """As the report has it: of each head its perplexity, the bytes of its packed weight, and the
    microseconds of one token, here and now; and those of all other layers of `model`."""
    table = job.source.read(job.source.head_table)
    found: dict[str, Any] = {}
    for name, head in heads.items():
        packed = getattr(head, "packed", None) or ops.pack_weight(table, FORMAT_OF[table.dtype])
        time = microseconds_of_a_token(packed, table.dtype)
        found[name] = {"perplexity": perplexities[name], "bytes": packed.nbytes}
        found[name] |= {"microseconds": time}
    layers = [each for name, each in model.named_modules() if name != "lm_head"]
    return {"layers_microseconds": microseconds_of_layers(layers, table.dtype), "formats": found}


def microseconds_of_a_token(weight: ops.PackedWeight, dtype: torch.dtype) -> float:
    """What `linear` takes for one row in `dtype` on this machine, at best."""
    x = torch.ones(1, weight.k, dtype=dtype)
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        ops.linear(x, weight)
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def microseconds_of_layers(layers: Iterable[torch.nn.Module], dtype: torch.dtype) -> float:
    """The same of all linear `layers` but the head, one after the other."""
    total = 0.0
    for layer in layers:
        if isinstance(layer, ServedLinear):
            total += microseconds_of_a_token(layer.packed, dtype)
        elif isinstance(layer, torch.nn.Linear):
            plain = ops.pack_weight(layer.weight.detach().to(dtype), FORMAT_OF[dtype])
            total += microseconds_of_a_token(plain, dtype)
    return total
