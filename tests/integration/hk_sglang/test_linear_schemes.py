"""Quantised layers that HK leaves to SGLang, each with its reason."""

from __future__ import annotations

import re
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.linear import methods, model
from hk_sglang.linear.schemes import NotServed, Scheme, scheme_of
from sglang.srt.layers.linear import LinearBase
from sglang.srt.layers.quantization.modelopt_quant import ModelOptMixedPrecisionConfig
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead

from hk_backend.engine.linear.rotated import RotationError
from hk_backend.engine.linear.shards import CheckpointError
from tests.integration.hk_sglang.linear_checkpoints import CHECKPOINTS
from tests.integration.hk_sglang.linear_layers import config_of, made, merged, method
from tests.integration.shared.checkpoints import K
from tests.integration.shared.linear.rotated import only_hk, written

NAME = "model.layers.0.self_attn.qkv_proj"
SHARDS = [f"model.layers.0.self_attn.{p}_proj" for p in "qkv"]
ONLINE = "quantised by SGLang while loading: use hk_fp8 or the like for HK"
OTHER = "activations in another format than the weight's"
ODD = "12 input features are not a positive multiple of 8"

pytestmark = pytest.mark.usefixtures("linear_route")


def read(config: Any, name: str = NAME) -> Scheme:
    return scheme_of(config, made(LinearBase, torch.bfloat16, 8, 8), name)


def left(config: Any, name: str = NAME) -> str:
    with pytest.raises(NotServed) as why:
        read(config, name)
    return str(why.value)


def changed(name: str, weights: Any = None, inputs: Any = None, **top: Any) -> dict[str, Any]:
    """The configuration of a scheme with some of its entries changed.

    `weights`, `inputs`: entries about weights and activations; "none" removes the group. `top`:
    entries beside them.
    """
    config = deepcopy(CHECKPOINTS[name].config) | top
    for group, names in (
        (config.get("config_groups", {}).get("group_0"), ("weights", "input_activations")),
        (config.get("global_quant_config"), ("weight", "input_tensors")),
    ):
        for key, change in zip(names, (weights, inputs), strict=True):
            if group and change:
                group[key] = None if change == "none" else group[key] | change
    return config


INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
GROUP_64 = {"strategy": "group", "group_size": 64}
GROUP_128 = {"strategy": "group", "group_size": 128}
QUARK_INT4 = {"dtype": "int4", "qscheme": "per_channel"}
QUARK_MX = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (changed("fp8-block", weight_block_size=[32, 32]), "weight scales per [32, 32]"),
        (
            changed("fp8-block", scale_fmt="ue8m0"),
            "activations scaled by powers of two (scale_fmt ue8m0)",
        ),
        (
            changed("ct-channel-token", INT4, "none", format="pack-quantized"),
            "compressed-tensors weights of 4-bit int",
        ),
        (changed("ct-block", {"block_structure": [64, 64]}), "weight scales per [64, 64]"),
        (
            changed("ct-channel-token", GROUP_64, "none"),
            "compressed-tensors weights of 8-bit float, scales per group",
        ),
        (
            changed("ct-channel-token", None, GROUP_128),
            "activations of 8 bits quantised per group",
        ),
        (
            changed("ct-channel-token", None, {"type": "int"}),
            "activations of 8 bits quantised per token",
        ),
        (changed("ct-mxfp4", None, {"num_bits": 8}), OTHER),
        (changed("quark-mxfp4", {"group_size": 16}, "none"), "Quark's weights in fp4 per 16"),
        (
            changed("quark-mxfp6_e2m3", None, {"dtype": "fp4"}),
            "activations in fp4 with a weight in mxfp6_e2m3",
        ),
        (
            changed("quark-mxfp4", None, {"group_size": 64}),
            "activations in fp4 with a weight in mxfp4",
        ),
        (changed("quark-tensor-static", {"qscheme": "per_block"}), "weight scales per None"),
        (changed("quark-block", None, QUARK_MX), "activations in fp4 quantised per_group"),
        (changed("quark-tensor-static", QUARK_INT4, "none"), "Quark's weights in int4 per_channel"),
        (
            changed("quark-channel-token", None, {"qscheme": "per_channel", "is_dynamic": False}),
            "activations in fp8_e4m3 quantised per_channel",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_of_a_checkpoint(config: dict[str, Any], why: str) -> None:
    assert left(config_of(config)) == why


@pytest.mark.parametrize("name", ["fp8", "mxfp8", "w8a8_fp8"])
def test_quantised_online_by_sglang(name: str) -> None:
    assert left(method(name)(**({"use_mxfp8": True} if name == "mxfp8" else {}))) == ONLINE


def test_other_reasons() -> None:
    sparse = config_of(CHECKPOINTS["ct-channel-token"].config)
    sparse.sparsity_scheme_map = {"Linear": object()}
    assert left(sparse) == "sparse weights"
    two_steps = changed("quark-mxfp4")
    two_steps["global_quant_config"]["weight"] = [two_steps["global_quant_config"]["weight"]] * 2
    o_proj = "model.layers.0.self_attn.o_proj"
    assert left(config_of(two_steps), o_proj) == "Quark's weights of more than one step"
    outputs = changed("quark-tensor-static")
    of_all = outputs["global_quant_config"]
    of_all["output_tensors"] = of_all["input_tensors"]
    assert left(config_of(outputs)) == "Quark's quantised outputs or bias"
    assert left(SimpleNamespace()) == "SimpleNamespace: HK has no kernel for it"


def mixed(algorithm: str) -> Any:
    return ModelOptMixedPrecisionConfig.from_config(
        {
            "quant_algo": "MIXED_PRECISION",
            "kv_cache_quant_algo": None,
            "quantized_layers": {name: {"quant_algo": algorithm} for name in SHARDS},
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


# -- layers that a checkpoint does not quantise


@pytest.mark.parametrize(
    "config",
    [
        changed("fp8-dynamic", ignored_layers=SHARDS),
        changed("ct-channel-token", ignore=["re:.*self_attn.*"]),
        changed("quark-tensor-static", exclude=["re:.*self_attn.*"]),
        changed("modelopt-fp8", ignore=["model.layers.0*"]),
    ],
    ids=lambda config: config["quant_method"],
)
def test_a_layer_that_the_checkpoint_does_not_quantise(config: dict[str, Any]) -> None:
    """SGLang gives the layer its unquantised method, which HK replaces."""
    assert left(config_of(config)) == ""
    layer = merged(config_of(config), torch.bfloat16, K, [128, 128, 128], prefix=NAME)
    assert isinstance(layer.quant_method, UnquantizedLinearMethod)
    assert not hasattr(layer, "hk_left")


def unmapped(kind: str, ignored: list[str]) -> Any:
    """A model's configuration without a list of merged layers, like SGLang's Llama's."""
    if kind == "quark":
        return config_of(changed("quark-tensor-static", exclude=ignored), {})
    return config_of(changed("ct-channel-token", ignore=ignored), {})


@pytest.mark.parametrize("ignored", [SHARDS, [r"re:.*\.[qkv]_proj$"], [NAME], ["re:.*qkv_proj$"]])
@pytest.mark.parametrize("kind", ["compressed-tensors", "quark"])
def test_a_model_that_does_not_say_what_it_merges(kind: str, ignored: list[str]) -> None:
    """The checkpoint names the shards, and HK finds the merged layer."""
    layer = merged(unmapped(kind, ignored), torch.bfloat16, K, [128] * 3, prefix=NAME)
    assert isinstance(layer.quant_method, UnquantizedLinearMethod)
    other = NAME.replace("layers.0", "layers.1")
    if ignored in (SHARDS, [NAME]):
        layer = merged(unmapped(kind, ignored), torch.bfloat16, K, [128] * 3, prefix=other)
        assert isinstance(layer.quant_method, methods.HKLinearMethod)
    why = f"{NAME}: the checkpoint leaves {SHARDS[0]} as it is, but not {SHARDS[2]}; SGLang runs"
    with pytest.raises(CheckpointError, match=why):
        merged(unmapped(kind, SHARDS[:2]), torch.bfloat16, K, [128] * 3, prefix=NAME)


# -- left once the layer's shape is known


def test_a_shape_outside_the_envelope() -> None:
    """SGLang's own method takes the place of HK's, with its own tensors."""
    config = config_of(CHECKPOINTS["fp8-static"].config)
    layer = merged(config, torch.bfloat16, 12, [128] * 3)
    assert type(layer.quant_method).__name__ == "Fp8LinearMethod"
    assert model.why_left(layer) == ODD
    assert layer.weight.shape == (384, 12)
    layer.weight_scale.weight_loader(layer.weight_scale, torch.tensor(0.5), 1)
    assert layer.weight_scale[1] == 0.5
    read_by_models = "model.layers.0.self_attn.kv_b_proj"
    layer = merged(config, torch.bfloat16, K, [128] * 3, prefix=read_by_models)
    assert type(layer.quant_method).__name__ == "Fp8LinearMethod"
    assert model.why_left(layer) == "SGLang's models may read its weight themselves"


def test_blocks_that_two_shards_share() -> None:
    """SGLang's own method refuses such a checkpoint, and HK's verdict gives the reason."""
    with pytest.raises(ValueError, match="output_partition_size = 192 is not divisible"):
        merged(config_of(CHECKPOINTS["fp8-block"].config), torch.bfloat16, K, [192, 192])
    verdict = methods._blocks_verdict([192, 192], 1, K, 1)
    assert verdict.why == (
        "merged shards of 192 and 192 output features do not end on blocks of 128: "
        "quantise the model with a scale per output channel instead"
    )
    assert methods._blocks_verdict([128, 96], 1, K, 1)
    assert not methods._blocks_verdict([128, 96], 2, K, 1)
    verdict = methods._blocks_verdict([128], 1, 192, 2)
    assert verdict.why == "192 input features on a rank do not end on a block of 128"


def test_a_layer_that_neither_serves(caplog: pytest.LogCaptureFixture) -> None:
    """The error is SGLang's own, and the log has HK's reason.

    SGLang stops if no group of the checkpoint names the layer, or if its method wants a GPU.
    """
    unnamed = changed("ct-channel-token")
    unnamed["config_groups"]["group_0"]["targets"] = ["re:.*experts.*"]
    with pytest.raises(ValueError, match="Unable to find matching target"):
        merged(config_of(unnamed), torch.bfloat16, K, [128, 128, 128], prefix=NAME)
    assert f"{NAME} is left to SGLang, which stops there: ValueError: Unable to" in caplog.text
    named = config_of(CHECKPOINTS["ct-channel-token"].config)
    with pytest.raises((AssertionError, RuntimeError)):
        merged(named, torch.bfloat16, 12, [128, 128, 128], prefix=NAME)
    assert f"{NAME} is left to SGLang, which stops there: {ODD}" in caplog.text


def test_a_head_that_a_group_names() -> None:
    """A head in a group of a rotated checkpoint is an error: SGLang would not rotate its inputs."""
    config = {**written(), "ignore": []}
    config["config_groups"]["group_0"]["targets"] = ["Linear", "re:.*lm_head"]
    arguments = {"quant_config": config_of(config), "prefix": "lm_head"}
    with pytest.raises(RotationError) as error:
        made(ParallelLMHead, torch.bfloat16, 128, 256, **arguments)
    assert re.match(only_hk("ParallelLMHead", layer="lm_head"), str(error.value))
