"""Tensors that a checkpoint lacks, and no checkpoint at all: vLLM's own loaders, with what
they read given to them."""

from __future__ import annotations

import pytest

from tests.integration.hk_vllm import linear_layers
from tests.integration.hk_vllm.linear_layers import config_of
from tests.integration.shared.linear.missing_tensors import *  # noqa: F403
from tests.integration.shared.linear.missing_tensors import refusal
from tests.integration.shared.linear.named_tensors import QKV, named, without
from tests.integration.shared.linear_checkpoints import CHECKPOINTS

pytestmark = pytest.mark.usefixtures("linear_route")


def test_a_model_that_renames_its_parts() -> None:
    checkpoint = CHECKPOINTS["fp8-dynamic"]
    parent = "model.language_model.layers.0.self_attn"
    tensors = named(checkpoint.tensors(), parent)
    rest = without(tensors, *(f"{parent}.{name}.weight_scale" for name in QKV[1:]))
    prefix = "language_model.model.layers.0.self_attn"
    config = config_of(checkpoint.config)
    found = refusal(linear_layers, config, rest, prefix=f"{prefix}.qkv_proj")
    assert found == f"{prefix}.k_proj.weight_scale: not in the checkpoint"
