"""The methods `--quantization hk_...` of either engine, and their options."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.integration.shared.linear.engine import LinearEngine


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
    with engine.installed():
        config = engine.online(name)
    options = config.options
    assert (config.get_name(), options.format, options.activations) == (name, format, activations)
    assert not config.serialized
    assert set(config.get_supported_act_dtypes()) == {torch.bfloat16, torch.float16, torch.float32}
    assert config.get_config_filenames() == []
    assert config.get_min_capability() == 0


def test_another_process_reads_it(
    engine: LinearEngine, format_elsewhere: Callable[[bytes], str]
) -> None:
    """Engines hand their configuration on by pickle, to processes where nothing is installed."""
    with engine.installed():
        stored = pickle.dumps(engine.online("hk_mxfp4"))
    assert format_elsewhere(stored) == "mxfp4"


def test_a_checkpoint_and_its_options(engine: LinearEngine) -> None:
    asked = {"format": "mxfp6_e3m2", "activations": "none", "rotation": 32}
    asked |= {"ignore": ["model.qkv_proj"], "head": "mxfp8", "embedding": "head"}
    with engine.installed():
        config = engine.config_of({"quant_method": "hk_mxfp6", **asked})
    assert config.serialized
    assert vars(config.options) == asked


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
    with engine.installed(), pytest.raises(ValueError) as error:
        engine.config_of({"quant_method": name, **option})
    assert str(error.value).startswith(f"{name}: {why}")


__all__ = [name for name in globals() if name.startswith("test_")]
