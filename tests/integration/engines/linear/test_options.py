"""The methods `--quantization hk_...` of either engine, and their options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.integration.shared.linear.engine import LinearEngine

pytestmark = pytest.mark.usefixtures("fresh_linear_route")


@pytest.mark.parametrize(
    ("name", "format", "activations"),
    [
        ("hk_fp8", "fp8_e4m3fn", "token"),
        ("hk_mxfp8", "mxfp8", "mx"),
        ("hk_mxfp6", "mxfp6_e2m3", "mx"),
        ("hk_mxfp4", "mxfp4", "mx"),
    ],
)
def test_a_method_by_its_name(
    engine: LinearEngine, name: str, format: str, activations: str
) -> None:
    config = engine.online(name)
    options = config.options
    assert (config.get_name(), options.format, options.activations) == (name, format, activations)
    assert not config.serialized
    assert set(config.get_supported_act_dtypes()) == {torch.bfloat16, torch.float16, torch.float32}
    assert (config.get_config_filenames(), config.get_min_capability()) == ([], 0)


@pytest.mark.parametrize(
    ("name", "option", "why"),
    [
        ("hk_fp8", {"activation": "none"}, "option 'activation' is not valid: expected one of f"),
        ("hk_fp8", {"activations": "mx"}, "activations 'mx' is not valid: expected one of none, "),
        ("hk_fp8", {"format": "mxfp4"}, "format 'mxfp4' is not valid: expected one of fp8_e4m3fn"),
        ("hk_mxfp6", {"format": "mxfp4"}, "format 'mxfp4' is not valid: expected one of mxfp6_e2"),
        ("hk_mxfp6", {"activations": "token"}, "activations 'token' is not valid: expected one o"),
        ("hk_mxfp6", {"ignored": []}, "option 'ignored' is not valid: expected one of format"),
    ],
)
def test_an_option_that_is_not_valid(
    engine: LinearEngine, name: str, option: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError) as error:
        engine.config_of({"quant_method": name, **option})
    assert str(error.value).startswith(f"{name}: {why}")


WIDTHS = [32, 16, 16]


@pytest.mark.parametrize(
    "ignored",
    [["*.k_proj", "*.q_proj", "*.v_proj"], ["model.qkv_proj"], ["*.[qkv]_proj"]],
    ids=str,
)
def test_layers_that_are_ignored(engine: LinearEngine, ignored: list[str]) -> None:
    config = engine.config_of({"quant_method": "hk_fp8", "ignore": ignored})
    layer = engine.merged(config, torch.bfloat16, 64, WIDTHS)
    assert type(layer.quant_method).__name__ == "UnquantizedLinearMethod"
    other = engine.merged(config, torch.bfloat16, 64, [32, 16], prefix="model.gate_up_proj")
    assert type(other.quant_method).__name__.startswith("HK")


def test_layers_that_cannot_be_quantised(
    engine: LinearEngine, environment: Callable[..., None]
) -> None:
    """Nobody else can compute them: an error, with the layer's name and what helps."""
    some = engine.config_of({"quant_method": "hk_fp8", "ignore": ["*.q_proj"]})
    with pytest.raises(ValueError, match=r"model.q_proj but not model.k_proj"):
        engine.merged(some, torch.bfloat16, 64, WIDTHS)
    odd = r"model\.qkv_proj: --quantization hk_mxfp4: 40 input"
    for config in (engine.config_of({"quant_method": "hk_mxfp4"}), engine.online("hk_mxfp4")):
        with pytest.raises(ValueError, match=odd):
            engine.merged(config, torch.bfloat16, 40, WIDTHS)
    environment(HK_DEVICE="emulated:gfx942")
    with pytest.raises(ValueError, match="no kernels for 'gfx942'"):
        engine.merged(engine.online("hk_fp8"), torch.bfloat16, 64, WIDTHS)


def test_experts(engine: LinearEngine) -> None:
    """They would be left as they are, and nobody told."""
    name = "model.layers.0.mlp.experts"
    with pytest.raises(ValueError, match=f"{name}: --quantization hk_fp8: HK has no kernel for"):
        engine.online("hk_fp8").get_quant_method(engine.experts(), name)
