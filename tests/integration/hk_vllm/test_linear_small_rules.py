"""Rules of the linear route that whole engines meet, on vLLM's classes alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_vllm.attention import probe
from hk_vllm.linear import head
from hk_vllm.linear.model import why_left
from hk_vllm.linear.online_checks import check_weight_arrived
from hk_vllm.linear.quantization import HKConfig
from vllm.config import LoadConfig, VllmConfig, set_current_vllm_config

from hk_backend.engine.linear.shards import CheckpointError


def layer_of(**members: Any) -> Any:
    layer = torch.nn.Module()
    for name, value in members.items():
        setattr(layer, name, value)
    return layer


@pytest.mark.parametrize(
    ("device", "why"), [("meta", None), ("cpu", "SimpleNamespace: HK has no kernel for it")]
)
def test_a_layer_whose_weight_is_on_another_rank_needs_no_reason(
    device: str, why: str | None
) -> None:
    weight = torch.nn.Parameter(torch.empty(8, 8, device=device))
    assert why_left(layer_of(weight=weight, quant_method=SimpleNamespace())) == why


def test_a_layer_without_a_weight_has_a_reason() -> None:
    layer = layer_of(quant_method=SimpleNamespace())
    assert why_left(layer) == "SimpleNamespace: HK has no kernel for it"


@pytest.mark.parametrize("load_format", ["auto", "dummy"])
def test_a_weight_has_to_arrive_unless_vllm_makes_it_up(load_format: str) -> None:
    layer = layer_of(prefix="0.mlp.down_proj")
    with set_current_vllm_config(VllmConfig(load_config=LoadConfig(load_format=load_format))):
        if load_format == "dummy":
            check_weight_arrived(layer)
        else:
            with pytest.raises(CheckpointError, match=r"0\.mlp\.down_proj\.weight: not in the"):
                check_weight_arrived(layer)


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
    assert head._asked_of(config, model_config).format == format


def test_a_probe_s_cache_holds_keys_then_values_of_each_head() -> None:
    cache = torch.zeros(4, 2, probe.BLOCK_SIZE, 6)
    key, value = torch.randn(2, 3, 2, 3)
    slots = torch.tensor([0, probe.BLOCK_SIZE + 5, 3 * probe.BLOCK_SIZE - 1])
    probe.Impl(2, 3, 1.0).do_kv_cache_update(layer_of(), key, value, cache, slots)
    for token, slot in enumerate(slots.tolist()):
        block, place = divmod(slot, probe.BLOCK_SIZE)
        assert torch.equal(cache[block, :, place, :3], key[token])
        assert torch.equal(cache[block, :, place, 3:], value[token])
    assert cache.count_nonzero() == 2 * key.numel()
