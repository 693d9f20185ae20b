"""LM heads in the format that is asked for."""

from __future__ import annotations

import pytest
import torch
from vllm.config import get_current_vllm_config

from hk_backend.engine.linear.heads import Head
from tests.integration.hk_vllm import linear_layers
from tests.integration.shared.linear.heads import *  # noqa: F403
from tests.integration.shared.linear.heads import table
from tests.integration.shared.linear.layers import left

pytestmark = pytest.mark.usefixtures("linear_route")


def test_a_head_that_vllm_computes_in_another_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs the table; the log says why HK does not serve it."""
    monkeypatch.setattr(get_current_vllm_config().model_config, "head_dtype", torch.float32)
    model = linear_layers.headed(Head("mxfp8"), table())
    why = "an LM head in torch.float32, the model in torch.bfloat16"
    assert left(linear_layers, model.lm_head) == why
    assert torch.equal(model.lm_head.weight[: len(table())], table())
