"""LM heads in the format that is asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_vllm.linear import model
from hk_vllm.linear.tied import share_table, why_table_stays
from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
from vllm.model_executor.model_loader.reload import record_metadata_for_reloading
from vllm.utils.torch_utils import set_default_torch_dtype

from hk_backend.engine.linear.heads import Head, asking
from hk_backend.engine.linear.shared_table import DRAFTS, LORA, SEVERAL
from hk_backend.ops.head_format import IN_HEAD, KEPT
from tests.integration.hk_vllm import linear_layers
from tests.integration.shared.linear.heads import assert_computes, assert_looks_up, table
from tests.integration.shared.linear.layers import left

pytestmark = pytest.mark.usefixtures("linear_route")


def test_an_embedding_in_the_head_is_in_the_compile_key() -> None:
    """A graph holds the operator that looks its rows up."""
    config = get_current_vllm_config()
    config.additional_config = {}
    linear_layers.headed(Head("mxfp8"), table(), tied=True)
    assert config.additional_config == {}
    linear_layers.headed(Head("mxfp8", IN_HEAD), table(), tied=True)
    assert config.additional_config == {"hk_backend": "linear: embedding in the head"}


def test_an_embedding_that_computes_the_logits() -> None:
    """Gemma 2, Cohere: one layer is both; it is packed once, and again with new weights."""
    whole: Any = torch.nn.Module()
    with set_default_torch_dtype(torch.bfloat16):
        whole.embed_tokens = VocabParallelEmbedding(*table().shape)
    record_metadata_for_reloading(whole)
    whole.embed_tokens.weight_loader(whole.embed_tokens.weight, table())
    whole.embed_tokens.quant_method.process_weights_after_loading(whole.embed_tokens)
    whole.logits_processor = LogitsProcessor(len(table()))
    with asking(Head("mxfp8", IN_HEAD)):
        model.account(whole)
        assert share_table(whole, "") == ""
    whole.__dict__["lm_head"] = whole.embed_tokens
    assert_looks_up(whole, table(), "mxfp8")
    assert_computes(linear_layers, whole, table(), "mxfp8")
    linear_layers.reload(whole, {"embed_tokens.weight": [table(seed=5)]})
    assert_looks_up(whole, table(seed=5), "mxfp8")
    assert_computes(linear_layers, whole, table(seed=5), "mxfp8")


def test_several_heads() -> None:
    """Which of them the embedding shares is not said."""
    whole = linear_layers.headed(Head("mxfp8"), table(), tied=True)
    whole.other = linear_layers.headed(Head("mxfp8"), table()).lm_head
    with asking(Head("mxfp8", IN_HEAD)):
        assert share_table(whole, "") == SEVERAL
    assert torch.equal(whole.lm_head.weight[: len(table())], table())


@pytest.mark.parametrize(
    ("speculative", "lora", "why"), [(None, None, ""), ("eagle", None, DRAFTS), (None, "all", LORA)]
)
def test_who_may_read_a_table(speculative: object, lora: object, why: str) -> None:
    config = SimpleNamespace(speculative_config=speculative, lora_config=lora)
    assert why_table_stays(config) == why


@pytest.mark.parametrize("format", [KEPT, "mxfp8"])
def test_a_head_that_vllm_computes_in_another_dtype(
    format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs the table; the log says why HK does not serve it."""
    monkeypatch.setattr(get_current_vllm_config().model_config, "head_dtype", torch.float32)
    whole = linear_layers.headed(Head(format), table())
    why = "an LM head in torch.float32, the model in torch.bfloat16"
    assert left(linear_layers, whole.lm_head) == why
    assert torch.equal(whole.lm_head.weight[: len(table())], table())
