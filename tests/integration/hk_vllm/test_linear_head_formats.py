"""LM heads in the format that is asked for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hk_vllm.linear.head import share_table, why_table_stays
from vllm.config import get_current_vllm_config

from hk_backend.engine.linear.heads import Head, asking
from hk_backend.engine.linear.shared_table import DRAFTS, LORA, SEVERAL
from hk_backend.ops.head_format import IN_HEAD
from tests.integration.hk_vllm import linear_layers
from tests.integration.shared.linear.heads import *  # noqa: F403
from tests.integration.shared.linear.heads import table
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


def test_several_heads() -> None:
    """Which of them the embedding shares is not said."""
    model = linear_layers.headed(Head("mxfp8"), table(), tied=True)
    model.other = linear_layers.headed(Head("mxfp8"), table()).lm_head
    with asking(Head("mxfp8", IN_HEAD)):
        assert share_table(model, "") == SEVERAL
    assert torch.equal(model.lm_head.weight[: len(table())], table())


@pytest.mark.parametrize(
    ("speculative", "lora", "why"), [(None, None, ""), ("eagle", None, DRAFTS), (None, "all", LORA)]
)
def test_who_may_read_a_table(speculative: object, lora: object, why: str) -> None:
    config = SimpleNamespace(speculative_config=speculative, lora_config=lora)
    assert why_table_stays(config) == why


def test_a_head_that_vllm_computes_in_another_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs the table; the log says why HK does not serve it."""
    monkeypatch.setattr(get_current_vllm_config().model_config, "head_dtype", torch.float32)
    model = linear_layers.headed(Head("mxfp8"), table())
    why = "an LM head in torch.float32, the model in torch.bfloat16"
    assert left(linear_layers, model.lm_head) == why
    assert torch.equal(model.lm_head.weight[: len(table())], table())
