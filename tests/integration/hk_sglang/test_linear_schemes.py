"""Quantised layers that HK leaves to SGLang, each with its reason."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.linear import checkpoints, model
from hk_sglang.linear.schemes import Left, Scheme, scheme_of
from sglang.srt.layers.linear import LinearBase
from sglang.srt.layers.quantization.modelopt_quant import ModelOptMixedPrecisionConfig
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead

from hk_backend.engine.linear.rotated import RotationError
from hk_backend.engine.linear.shards import CheckpointError
from tests.integration.hk_sglang.linear_layers import config_of, made, merged
from tests.integration.shared.linear.rotated import only_hk, written
from tests.integration.shared.linear_checkpoints import DYNAMIC, MXFP4, MXFP8, TOKEN, K
from tests.integration.shared.quantization_configs import (
    Config,
    compressed_tensors,
    fp8,
    modelopt,
    quark,
    quark_fp8,
)
from tests.integration.shared.quantization_configs import quark_mx as mx

NAME = "model.layers.0.self_attn.qkv_proj"
FP8 = "float-quantized"
ONLINE = "quantised by SGLang while loading: use hk_fp8 or the like for HK"
OTHER = "activations in another format than the weight's"


pytestmark = pytest.mark.usefixtures("linear_route")


def read(config: Any, name: str = NAME) -> Scheme:
    return scheme_of(config, made(LinearBase, torch.bfloat16, 8, 8), name)


def left(config: Any, name: str = NAME) -> str:
    with pytest.raises(Left) as why:
        read(config, name)
    return str(why.value)


BLOCK_64 = {"strategy": "block", "block_structure": [64, 64]}
GROUP = {"strategy": "group", "group_size": 128, "dynamic": True}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (fp8("dynamic", weight_block_size=[32, 32]), "weight scales per [32, 32]"),
        (
            fp8("dynamic", weight_block_size=[128, 128], scale_fmt="ue8m0"),
            "activations scaled by powers of two (scale_fmt ue8m0)",
        ),
        (
            compressed_tensors(INT4, None, "pack-quantized"),
            "compressed-tensors weights of 4-bit int",
        ),
        (compressed_tensors(BLOCK_64, GROUP, FP8), "weight scales per [64, 64]"),
        (
            compressed_tensors({"strategy": "group", "group_size": 64}, None, FP8),
            "compressed-tensors weights of 8-bit float, scales per group",
        ),
        (
            compressed_tensors({"strategy": "channel"}, GROUP, FP8),
            "activations of 8 bits quantised per group",
        ),
        (
            compressed_tensors({"strategy": "channel"}, {**TOKEN, "type": "int"}, FP8),
            "activations of 8 bits quantised per token",
        ),
        (compressed_tensors(MXFP4, {**MXFP8, **DYNAMIC}, "mxfp4-pack-quantized"), OTHER),
        (quark(mx("fp4", False) | {"group_size": 16}, None), "Quark's weights in fp4 per 16"),
        (quark(mx("fp4", False), mx("fp6_e2m3", True)), OTHER),
        (quark(quark_fp8("per_block", False), None), "weight scales per None"),
        (
            quark(quark_fp8("per_block", False) | {"block_size": [128, 128]}, mx("fp4", True)),
            "activations in fp4 quantised per_group",
        ),
        (
            quark({"dtype": "int4", "qscheme": "per_channel"}, None),
            "Quark's weights in int4 per_channel",
        ),
        (
            quark(quark_fp8("per_channel", False), quark_fp8("per_channel", False)),
            "activations in fp8_e4m3 quantised per_channel",
        ),
    ],
    ids=str,
)
def test_of_a_checkpoint(config: Config, why: str) -> None:
    assert left(config_of(config)) == why


@pytest.mark.parametrize("method", ["fp8", "mxfp8", "w8a8_fp8"])
def test_quantised_online_by_sglang(method: str) -> None:
    from sglang.srt.layers.quantization import get_quantization_config

    options = {"use_mxfp8": True} if method == "mxfp8" else {}
    assert left(get_quantization_config(method)(**options)) == ONLINE


def test_sparse_weights() -> None:
    config = config_of(compressed_tensors({"strategy": "channel"}, TOKEN, FP8))
    config.sparsity_scheme_map = {"Linear": object()}
    assert left(config) == "sparse weights"


def test_quark_in_two_steps() -> None:
    config = quark(quark_fp8("per_tensor", False), None)
    config["global_quant_config"]["weight"] = [mx("fp4", False)] * 2
    found = left(config_of(config), "model.layers.0.self_attn.o_proj")
    assert found == "Quark's weights of more than one step"


def test_quark_with_quantised_outputs() -> None:
    config = quark(quark_fp8("per_tensor", False), None)
    config["global_quant_config"]["output_tensors"] = quark_fp8("per_tensor", False)
    assert left(config_of(config)) == "Quark's quantised outputs or bias"


def test_a_configuration_that_hk_does_not_know() -> None:
    assert left(SimpleNamespace()) == "SimpleNamespace: HK has no kernel for it"


def mixed(algorithm: str) -> Any:
    layers = {f"model.layers.0.self_attn.{each}_proj": {"quant_algo": algorithm} for each in "qkv"}
    return ModelOptMixedPrecisionConfig.from_config(
        {
            "quant_algo": "MIXED_PRECISION",
            "kv_cache_quant_algo": None,
            "quantized_layers": layers,
            "packed_modules_mapping": {"qkv_proj": ["q_proj", "k_proj", "v_proj"]},
        }
    )


@pytest.mark.parametrize(
    ("algorithm", "scale_kind", "activations"),
    [
        ("FP8", "tensor", "tensor"),
        ("FP8_PB_WO", "block", "token_block"),
        ("MXFP8", "mx", "mx"),
    ],
)
def test_modelopt_with_an_algorithm_for_each_layer(
    algorithm: str, scale_kind: str, activations: str
) -> None:
    found = read(mixed(algorithm))
    assert (found.scale_kind, found.activations) == (scale_kind, activations)
    assert left(mixed(algorithm), "model.layers.0.mlp.down_proj") == ""
    assert left(mixed("NVFP4")) == "ModelOpt's NVFP4: HK has no kernel for it"


@pytest.mark.parametrize(
    "config",
    [
        fp8("dynamic", ignored_layers=[f"model.layers.0.self_attn.{p}_proj" for p in "qkv"]),
        compressed_tensors({"strategy": "channel"}, TOKEN, FP8) | {"ignore": ["re:.*self_attn.*"]},
        quark(quark_fp8("per_tensor", False), None) | {"exclude": ["re:.*self_attn.*"]},
        modelopt("FP8") | {"ignore": ["model.layers.0*"]},
    ],
    ids=lambda config: config["quant_method"],
)
def test_a_layer_that_the_checkpoint_does_not_quantise(config: Config) -> None:
    """It is SGLang's unquantised method's, which HK serves in place."""
    assert left(config_of(config)) == ""
    layer = merged(config_of(config), torch.bfloat16, K, [128, 128, 128], prefix=NAME)
    assert isinstance(layer.quant_method, UnquantizedLinearMethod)
    assert not hasattr(layer, "hk_left")


SHARDS = [f"model.layers.0.self_attn.{p}_proj" for p in "qkv"]


@pytest.mark.parametrize("ignored", [SHARDS, [r"re:.*\.[qkv]_proj$"], [NAME], ["re:.*qkv_proj$"]])
@pytest.mark.parametrize("kind", ["compressed-tensors", "quark"])
def test_a_model_that_does_not_say_what_it_merges(kind: str, ignored: list[str]) -> None:
    """As Llama, Mistral and Qwen in SGLang: the checkpoint names the shards."""
    layer = merged(unmapped(kind, ignored), torch.bfloat16, K, [128] * 3, prefix=NAME)
    assert isinstance(layer.quant_method, UnquantizedLinearMethod)
    other = NAME.replace("layers.0", "layers.1")
    if ignored in (SHARDS, [NAME]):
        layer = merged(unmapped(kind, ignored), torch.bfloat16, K, [128] * 3, prefix=other)
        assert isinstance(layer.quant_method, checkpoints.HKLinearMethod)


@pytest.mark.parametrize("kind", ["compressed-tensors", "quark"])
def test_some_shards_alone(kind: str) -> None:
    why = f"{NAME}: the checkpoint leaves {SHARDS[0]} as it is, but not {SHARDS[2]}; SGLang runs"
    with pytest.raises(CheckpointError, match=why):
        merged(unmapped(kind, SHARDS[:2]), torch.bfloat16, K, [128] * 3, prefix=NAME)


def unmapped(kind: str, ignored: list[str]) -> Any:
    if kind == "quark":
        return config_of(quark(quark_fp8("per_tensor", False), None) | {"exclude": ignored}, {})
    return config_of(
        compressed_tensors({"strategy": "channel"}, TOKEN, FP8) | {"ignore": ignored}, {}
    )


# -- left when the layer's shape is known


def static_layer(k: int = K, widths: list[int] | None = None, name: str = "model.qkv_proj") -> Any:
    return merged(config_of(fp8("static")), torch.bfloat16, k, widths or [128] * 3, prefix=name)


def test_a_shape_outside_the_envelope() -> None:
    """SGLang's own method takes its place, with its own tensors."""
    layer = static_layer(k=12)
    assert type(layer.quant_method).__name__ == "Fp8LinearMethod"
    assert model.why_left(layer) == "12 input features are not a positive multiple of 8"
    assert layer.weight.shape == (384, 12)
    layer.weight_scale.weight_loader(layer.weight_scale, torch.tensor(0.5), 1)
    assert layer.weight_scale[1] == 0.5


def test_a_weight_that_models_read() -> None:
    layer = static_layer(name="model.layers.0.self_attn.kv_b_proj")
    assert type(layer.quant_method).__name__ == "Fp8LinearMethod"
    assert model.why_left(layer) == "SGLang's models may read its weight themselves"


def test_blocks_that_two_shards_share() -> None:
    """SGLang's own method refuses such a checkpoint."""
    config = config_of(fp8("dynamic", weight_block_size=[128, 128]))
    with pytest.raises(ValueError, match="output_partition_size = 192 is not divisible"):
        merged(config, torch.bfloat16, K, [192, 192], prefix="model.gate_up_proj")


def test_the_verdict_on_blocks() -> None:
    verdict = checkpoints._blocks_verdict([192, 192], 1, K, 1)
    assert verdict.why == (
        "merged shards of 192 and 192 output features do not end on blocks of 128: "
        "quantise the model with a scale per output channel instead"
    )
    assert checkpoints._blocks_verdict([128, 96], 1, K, 1)
    assert not checkpoints._blocks_verdict([128, 96], 2, K, 1)
    verdict = checkpoints._blocks_verdict([128], 1, 192, 2)
    assert verdict.why == "192 input features on a rank do not end on a block of 128"


def test_a_configuration_that_sglang_has_an_error_for(caplog: pytest.LogCaptureFixture) -> None:
    """A layer that no group of the checkpoint names: the error is SGLang's own."""
    config = compressed_tensors({"strategy": "channel"}, TOKEN, FP8)
    config["config_groups"]["group_0"]["targets"] = ["re:.*experts.*"]
    with pytest.raises(ValueError, match="Unable to find matching target"):
        merged(config_of(config), torch.bfloat16, K, [128, 128, 128], prefix=NAME)
    assert f"{NAME} is left to SGLang, which stops there: ValueError: Unable to" in caplog.text


def test_a_layer_that_neither_serves(caplog: pytest.LogCaptureFixture) -> None:
    """SGLang's method for it wants a GPU, and says only that: the log has HK's reason, too."""
    config = compressed_tensors({"strategy": "channel"}, TOKEN, FP8)
    with pytest.raises((AssertionError, RuntimeError)):
        merged(config_of(config), torch.bfloat16, 12, [128, 128, 128], prefix=NAME)
    why = "12 input features are not a positive multiple of 8"
    assert f"{NAME} is left to SGLang, which stops there: {why}" in caplog.text


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
