"""The formats that the LM head and the embedding may be served in."""

from __future__ import annotations

from hk_backend.ops.head_format import EMBEDDINGS, IN_HEAD, KEPT
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.recipe import RECIPES
from hk_backend.quantize.source import EMBEDDING, TIED, Source
from hk_backend.terms.weight_format import FORMATS

HEAD_RECIPES = tuple(name for name, recipe in RECIPES.items() if recipe.granularity != "block")
"""Values of `--head` besides `KEPT`."""


def check_head(source: Source, name: str) -> None:
    """Check that the model's LM head can be served in format `name`.

    Raises:
        QuantizeError: `name` is no value of `--head`, or the model's head does not fit it, or
            contains NaN or infinity.
    """
    if name == KEPT:
        return
    if name not in HEAD_RECIPES:
        raise QuantizeError(f"--head {name}: choose one of {', '.join((KEPT, *HEAD_RECIPES))}")
    if not source.has_head:
        raise QuantizeError(f"--head {name}: {source.directory} has no LM head")
    table, multiple = source.head_table, FORMATS[RECIPES[name].format].k_multiple
    k = source.tensors[table].shape[1]
    if k % multiple:
        raise QuantizeError(
            f"--head {name}: {table} has {k} input channels; {name} needs a multiple of {multiple}"
        )
    source.finite(table)


def check_embedding(source: Source, name: str, head: str) -> None:
    """Check that the embedding can be served as `name`.

    Raises:
        QuantizeError: `name` is no value of `--embedding`, or does not fit the model or `head`.
    """
    if name not in EMBEDDINGS:
        raise QuantizeError(f"--embedding {name}: choose one of {', '.join(EMBEDDINGS)}")
    if name == IN_HEAD and head == KEPT:
        raise QuantizeError(f"--embedding {name} needs --head FORMAT: what it shares is packed")
    if name == IN_HEAD and source.head_table != f"{EMBEDDING}.weight":
        though = f", though config.json has {TIED}: true" if source.has_other_head else ""
        why = f"the model's LM head has a table of its own{though}"
        raise QuantizeError(f"--embedding {name}: {why}")
