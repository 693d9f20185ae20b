"""Layers of quantised checkpoints, one per scheme that vLLM knows: HK computes what the
checkpoint's own numbers say, shard by shard."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from vllm.model_executor.utils import weights_already_processed

from tests.integration.hk_vllm.linear_layers import config_of, load, merged
from tests.integration.shared.linear.checkpoints import *  # noqa: F403
from tests.integration.shared.linear_checkpoints import CHECKPOINTS, WIDTHS, K

pytestmark = pytest.mark.usefixtures("linear_route")


def test_weights_that_are_processed_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's weight cache hands over runtime tensors: HK must not read them as a checkpoint's."""
    checkpoint = CHECKPOINTS["fp8-dynamic"]
    layer = merged(config_of(checkpoint.config), torch.bfloat16, K, WIDTHS)
    read: list[Any] = []
    kernel = layer.quant_method.fp8_linear
    monkeypatch.setattr(kernel, "process_checkpoint", read.append)
    with weights_already_processed():
        load(layer, checkpoint.tensors())
    assert not read
    load(layer, checkpoint.tensors())
    assert read == [layer]
