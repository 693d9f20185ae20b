"""A configuration that ties the LM head to the embedding, and checkpoints that hold both tables.

vLLM then builds two tables and shares one of them if they turn out to be equal. Its reload fills
each layer apart from the other, in the order in which the tensors come.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_vllm.linear import head
from hk_vllm.linear.quantization import HKConfig
from hk_vllm.linear.tied import share_table
from torch.nn.functional import linear
from vllm.model_executor.layers import vocab_parallel_embedding as vocabulary
from vllm.model_executor.model_loader.reload import record_metadata_for_reloading
from vllm.model_executor.model_loader.weight_tying import maybe_retie_word_embeddings
from vllm.utils.torch_utils import set_default_torch_dtype

from hk_backend.engine.linear.heads import KEPT_HEAD, Head, requesting
from hk_backend.engine.linear.kept import reloading
from hk_backend.engine.linear.shards import CheckpointError
from hk_backend.ops.head_format import IN_HEAD
from tests.integration.hk_vllm import linear_layers
from tests.integration.shared.linear.heads import (
    VOCABULARY,
    K,
    assert_computes,
    assert_looks_up,
    table,
    x_of,
)

HEAD, EMBEDDING = "lm_head.weight", "embed_tokens.weight"
ASKED = [KEPT_HEAD, Head("mxfp8"), Head("mxfp8", IN_HEAD), Head("mxfp4", IN_HEAD)]
asked_for = pytest.mark.parametrize(
    "asked", ASKED, ids=lambda head: f"{head.format}-{head.embedding}"
)
orders = pytest.mark.parametrize(
    "order", [(HEAD, EMBEDDING), (EMBEDDING, HEAD)], ids=["head-first", "last"]
)
Load = Callable[..., Any]


def loaded(asked: Head, tables: dict[str, torch.Tensor], rows: int = VOCABULARY) -> Any:
    """A model of both layers that vLLM has loaded from a checkpoint of `tables`."""
    model: Any = torch.nn.Module()
    with set_default_torch_dtype(torch.bfloat16):
        model.embed_tokens = vocabulary.VocabParallelEmbedding(rows, K, prefix="embed_tokens")
        model.lm_head = vocabulary.ParallelLMHead(rows, K, prefix="lm_head")
    if HEAD not in tables:
        model.lm_head = model.lm_head.tie_weights(model.embed_tokens)
    record_metadata_for_reloading(model)
    for name, values in tables.items():
        parameter = model.get_parameter(name)
        parameter.weight_loader(parameter, values)
    found = SimpleNamespace(word_embeddings_untied_by_checkpoint=HEAD in tables, model="")
    maybe_retie_word_embeddings(model, found)
    with requesting(asked):
        for layer in model.children():
            layer.quant_method.process_weights_after_loading(layer)
        model.why_table_stays = share_table(model, "")
    return model


@pytest.fixture(params=["one-table", "equal-tables"])
def tied(request: pytest.FixtureRequest, fresh_linear_route: None) -> Load:
    """Load a model whose head has the embedding's table; its checkpoint holds it once or twice."""

    def load(asked: Head, rows: int = VOCABULARY) -> Any:
        names = [EMBEDDING] if request.param == "one-table" else [HEAD, EMBEDDING]
        return loaded(asked, dict.fromkeys(names, table()[:rows]), rows)

    return load


def assert_is(model: Any, asked: Head, head: torch.Tensor, embedding: torch.Tensor) -> None:
    """Hold that the model multiplies by `head` and looks up rows of `embedding`."""
    format = "bf16" if asked is KEPT_HEAD else asked.format
    if format == "bf16":
        logits = linear_layers.logits(model, x_of())[:, : len(head)]
        assert torch.allclose(logits.float(), linear(x_of(), head).float(), rtol=2e-2, atol=2e-2)
    else:
        assert_computes(linear_layers, model, head, format)
    if asked.embedding == IN_HEAD:
        assert_looks_up(model, embedding, format)
        return
    ids, layer = torch.tensor([len(embedding) - 1, 0, 7]), model.embed_tokens
    assert torch.equal(layer.quant_method.embedding(layer, ids), embedding[ids])


@asked_for
@orders
@pytest.mark.parametrize("rows", [VOCABULARY, 256])
def test_a_reload_with_another_head(
    tied: Load, asked: Head, order: tuple[str, str], rows: int
) -> None:
    """A vocabulary that is padded is processed when the reload ends, another one at once."""
    model = tied(asked, rows)
    values = {HEAD: table(5)[:rows], EMBEDDING: table(6)[:rows]}
    linear_layers.reload(model, {name: [values[name]] for name in order})
    assert_is(model, asked, values[HEAD], values[EMBEDDING])


@asked_for
@orders
def test_reloads(tied: Load, asked: Head, order: tuple[str, str]) -> None:
    model = tied(asked)
    # a reload of the head alone
    linear_layers.reload(model, {HEAD: [table(5)]})
    assert_is(model, asked, table(5), table())
    # a reload of the same table twice, after which both share one again
    linear_layers.reload(model, {name: [table(7)] for name in order})
    assert_is(model, asked, table(7), table(7))
    if asked.embedding == IN_HEAD:
        assert model.lm_head.hk_data.data_ptr() == model.embed_tokens.hk_data.data_ptr()
    assert model.lm_head.weight is model.embed_tokens.weight or model.lm_head.weight.numel() == 0
    # one table after two: a checkpoint without a head's table means the embedding's
    linear_layers.reload(model, {HEAD: [table(5)], EMBEDDING: [table(6)]})
    linear_layers.reload(model, {EMBEDDING: [table(8)]})
    assert_is(model, asked, table(8), table(8))


def broken(seed: int) -> torch.Tensor:
    values = table(seed)
    values[3, 5] = torch.nan
    return values


@pytest.mark.parametrize("asked", ASKED[1:], ids=lambda head: f"{head.format}-{head.embedding}")
@orders
@pytest.mark.parametrize("bad", [HEAD, EMBEDDING])
def test_a_reload_with_a_table_that_is_not_finite(
    tied: Load, asked: Head, order: tuple[str, str], bad: str
) -> None:
    """After a reload of one bad table, the head computes what it did before.

    A reload of two tables goes on to its end and then reports the bad one. The model then takes
    another checkpoint.
    """
    model = tied(asked)
    with pytest.raises(CheckpointError, match="keep the weights that they had"), reloading():
        linear_layers.reload(model, {EMBEDDING: [broken(5)]})
    if asked.embedding == IN_HEAD:
        assert_is(model, asked, table(), table())
    else:
        assert_computes(linear_layers, model, table(), asked.format)
    values = {name: broken(5) if name == bad else table(6) for name in order}
    served = bad == HEAD or asked.embedding == IN_HEAD  # else the table stays in 16 bits
    name = "lm_head" if bad == HEAD else r"(lm_head|embed_tokens)"
    refused = pytest.raises(CheckpointError, match=rf"{name}\.weight: nan at \[3, 5\] is not")
    with refused if served else nullcontext(), reloading():
        linear_layers.reload(model, {name: [values[name]] for name in order})
    after = {HEAD: table(7), EMBEDDING: table(8)}
    with reloading():
        linear_layers.reload(model, {name: [after[name]] for name in order})
    assert_is(model, asked, after[HEAD], after[EMBEDDING])


@pytest.mark.parametrize(
    ("config", "method", "format"),
    [
        (None, None, "fp8_e4m3fn"),
        (HKConfig(head="mxfp8"), "hk_fp8", "mxfp8"),
        (HKConfig(head="mxfp8"), "fp8", "fp8_e4m3fn"),
    ],
)
def test_the_head_of_the_method_in_use_else_of_the_checkpoint(
    config: Any, method: str | None, format: str
) -> None:
    checkpoint = {"quantization_config": {"hk_head": "fp8_e4m3fn"}}
    model_config = SimpleNamespace(quantization=method, hf_config=SimpleNamespace(**checkpoint))
    assert head._head_requested_by(config, model_config).format == format
