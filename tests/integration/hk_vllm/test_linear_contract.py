"""The linear route's contract with vLLM, its registration, and the options of its quantisations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hk_vllm.linear.contract import check_linear
from hk_vllm.linear.install import register_linear
from vllm.model_executor.kernels import linear as lists
from vllm.model_executor.layers import fused_moe, linear, logits_processor, vocab_parallel_embedding
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.fusion import quant_activation
from vllm.model_executor.layers.quantization import (
    QUANTIZATION_METHODS,
    fp8,
    get_quantization_config,
    modelopt,
)
from vllm.model_executor.layers.quantization.compressed_tensors import compressed_tensors, schemes
from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8
from vllm.model_executor.layers.quantization.kv_cache import BaseKVCacheMethod
from vllm.model_executor.layers.quantization.utils import quant_utils
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader
from vllm.model_executor.model_loader.tensorizer_loader import TensorizerLoader

from tests.integration.hk_vllm.linear_layers import alone
from tests.integration.hk_vllm.restore import restored
from tests.integration.shared.contract import assert_refused, nothing, short


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (linear.UnquantizedLinearMethod, "apply"),
        (linear.UnquantizedLinearMethod, "process_weights_after_loading"),
        (linear.LinearMethodBase, "create_weights"),
        (vocab_parallel_embedding.UnquantizedEmbeddingMethod, "apply"),
        (vocab_parallel_embedding.UnquantizedEmbeddingMethod, "process_weights_after_loading"),
        (lists, "is_supported_and_can_implement_kernel"),
        (lists.FP8ScaledMMLinearKernel, "apply_weights"),
        (lists.Mxfp8LinearKernel, "process_weights_after_loading"),
        (fp8.Fp8LinearMethod, "process_weights_after_loading"),
        (modelopt.ModelOptLinearMethod, "process_weights_after_loading"),
        (modelopt.ModelOptLinearMethod, "create_weights"),
        (schemes.CompressedTensorsW8A8Fp8, "process_weights_after_loading"),
        (compressed_tensors.CompressedTensorsConfig, "_get_scheme_from_parts"),
        (quant_activation, "as_quantized_activation"),
        (QuantFP8, "forward_native"),
        (BaseKVCacheMethod, "__init__"),
        (BaseModelLoader, "load_model"),
        (ShardedStateLoader, "save_model"),
        (TensorizerLoader, "save_model"),
    ],
    ids=short,
)
def test_something_else_in_its_place(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    monkeypatch.setattr(owner, name, nothing)
    assert_refused(check_linear, "nothing(self), expected (")


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        *((lists, f"_POSSIBLE_{kind}_KERNELS") for kind in ("FP8", "FP8_BLOCK", "WFP8A16")),
        *((lists, f"_POSSIBLE_{kind}_KERNELS") for kind in ("MXFP8", "MXFP6", "MXFP4")),
        (linear, "LinearBase"),
        (linear, "register_weight_loader_v2_supported_method"),
        (vocab_parallel_embedding, "ParallelLMHead"),
        (logits_processor, "LogitsProcessor"),
        (fused_moe, "RoutedExperts"),
        (quant_utils.GroupShape, "is_per_token"),
    ],
    ids=short,
)
def test_something_missing(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    monkeypatch.delattr(owner, name)
    assert_refused(check_linear, name)


def test_nothing_is_patched_if_it_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp8.Fp8LinearMethod, "process_weights_after_loading", nothing)
    before = dict(vars(linear.UnquantizedLinearMethod)), list(QUANTIZATION_METHODS)
    assert register_linear().startswith("vLLM is not one the plugin knows: nothing(self)")
    assert dict(vars(linear.UnquantizedLinearMethod)) == before[0]
    assert before[1] == QUANTIZATION_METHODS


# -- registration


@pytest.fixture
def clean() -> Iterator[None]:
    with restored():
        yield


def test_options_and_layers_that_are_not_linear(clean: None) -> None:
    """Of a checkpoint that is not quantised. Attention layers take the scales of an FP8 cache from
    the checkpoint."""
    with alone():
        assert register_linear() == ""
        owner = get_quantization_config("hk_mxfp6")
        online = owner.from_config_dict_json('{"format": "mxfp6_e3m2", "activations": "none"}')
        found = (online.options.format, online.options.activations, online.serialized)
        assert found == ("mxfp6_e3m2", "none", False)
        config = get_quantization_config("hk_fp8")()
        layer = object.__new__(Attention)
        assert isinstance(config.get_quant_method(layer, "model.attn"), BaseKVCacheMethod)
        assert config.get_quant_method(torch.nn.Module(), "lm_head") is None
