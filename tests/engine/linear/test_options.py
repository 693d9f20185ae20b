"""The hk_* methods' options, and what their errors say."""

from __future__ import annotations

import pytest

from hk_backend.engine.linear.options import FORMATS_OF, choose, is_ignored, known_options
from hk_backend.terms.weight_format import ROTATED

LAYER = "model.layers.1.self_attn.qkv_proj"


@pytest.mark.parametrize("method", FORMATS_OF)
def test_defaults(method: str) -> None:
    options = choose(method, "fp8_e4m3fnuz")
    expected = {"hk_fp8": ("fp8_e4m3fnuz", "token")}
    assert (options.format, options.activations) == expected.get(
        method, (FORMATS_OF[method][0], "mx")
    )
    assert options.ignore == []


def test_what_is_asked_for() -> None:
    options = choose("hk_mxfp6", "", "mxfp6_e3m2", "none", ["lm_head"])
    assert (options.format, options.activations) == ("mxfp6_e3m2", "none")
    assert options.ignore == ["lm_head"]


@pytest.mark.parametrize("activations", ROTATED)
def test_no_weight_is_rotated_at_load(activations: str) -> None:
    with pytest.raises(ValueError, match=f"activations '{activations}' .* one of none, mx$"):
        choose("hk_mxfp4", "fp8_e4m3fn", activations=activations)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"format": "mxfp8"},
            "hk_fp8: format 'mxfp8' is not valid: expected one of fp8_e4m3fn, fp8_e4m3fnuz",
        ),
        (
            {"activations": "mx"},
            "hk_fp8: activations 'mx' is not valid: expected one of none, token",
        ),
    ],
)
def test_a_value_that_is_not_valid(options: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError) as error:
        choose("hk_fp8", "fp8_e4m3fn", **options)
    assert str(error.value).startswith(why)


def test_an_option_that_is_unknown() -> None:
    assert known_options("hk_fp8", {"quant_method": "hk_fp8", "ignore": []}) == {"ignore": []}
    with pytest.raises(ValueError, match="hk_fp8: option 'bits' is not valid: expected one of fo"):
        known_options("hk_fp8", {"bits": 8})


@pytest.mark.parametrize(
    ("patterns", "ignored"),
    [
        ([], False),
        ([LAYER], True),
        (["*.layers.1.*"], True),
        (["*.[qkv]_proj"], True),
        ([f"model.layers.1.self_attn.{each}_proj" for each in "qkv"], True),
        (["*.layers.2.*", "model.layers.1.self_attn.o_proj"], False),
    ],
    ids=str,
)
def test_layers_that_are_ignored(patterns: list[str], ignored: bool) -> None:
    assert is_ignored(LAYER, patterns, None) is ignored


def test_a_merged_layer_of_which_a_part_is_ignored() -> None:
    with pytest.raises(ValueError, match=r"self_attn.q_proj but not model.layers.1.self_attn.k_p"):
        is_ignored(LAYER, ["*.q_proj"], None)


def test_a_model_that_calls_the_shards_otherwise() -> None:
    merged = {"qkv_proj": ["query", "key", "value"]}
    assert is_ignored(LAYER, ["*.query", "*.key", "*.value"], merged)
    assert not is_ignored(LAYER, ["*.[qkv]_proj"], merged)
