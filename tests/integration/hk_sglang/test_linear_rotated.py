"""Rotated checkpoints in SGLang: HK serves them, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch
from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead

from hk_backend.engine.linear.rotated import RotationError
from tests.integration.hk_sglang.linear_layers import config_of, installed, made, rank
from tests.integration.shared.linear.rotated import *  # noqa: F403
from tests.integration.shared.linear.rotated import written
from tests.integration.shared.linear.rotated_refused import *  # noqa: F403
from tests.integration.shared.linear.rotated_refused import only_hk


@pytest.fixture(autouse=True)
def route() -> Iterator[None]:
    with rank(), installed(), torch.no_grad():
        yield


def test_experts() -> None:
    experts = object.__new__(FusedMoE)
    torch.nn.Module.__init__(experts)
    name = "model.layers.0.mlp.experts"
    with pytest.raises(RotationError) as error:
        config_of(written()).get_quant_method(experts, name)
    assert re.match(only_hk("experts of a mixture", layer=name), str(error.value))


def test_a_head_that_a_group_names() -> None:
    """SGLang would compute it by a method of its own."""
    config = written()
    config["config_groups"]["group_0"]["targets"] = ["Linear", "re:.*lm_head"]
    with pytest.raises(RotationError) as error:
        made(
            ParallelLMHead,
            torch.bfloat16,
            128,
            256,
            quant_config=config_of({**config, "ignore": []}),
            prefix="lm_head",
        )
    assert re.match(only_hk("ParallelLMHead", layer="lm_head"), str(error.value))
