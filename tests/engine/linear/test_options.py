"""The hk_* methods' options, and what their errors say."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hk_backend.engine.linear.options import FORMATS_OF, choose, is_ignored, known_options
from hk_backend.ops.head_format import head_rounding
from hk_backend.terms.weight_format import ROTATED

LAYER = "model.layers.1.self_attn.qkv_proj"


@pytest.mark.parametrize("method", FORMATS_OF)
def test_defaults(method: str) -> None:
    options = choose(method, "fp8_e4m3fnuz")
    expected = {"hk_fp8": ("fp8_e4m3fnuz", "token")}
    assert (options.format, options.activations) == expected.get(
        method, (FORMATS_OF[method][0], "mx")
    )
    assert (options.ignore, options.head) == ([], "16")


def test_what_is_asked_for() -> None:
    for head in ("mxfp6_e3m2", "fp8_e4m3fn", "16", 16):
        assert choose("hk_fp8", "fp8_e4m3fn", head=head).head == str(head)
    options = choose("hk_mxfp6", "", "mxfp6_e3m2", "none", 32, ["lm_head"])
    assert (options.format, options.activations) == ("mxfp6_e3m2", "none")
    assert options.rounding(96) == ("rotated", 32)
    assert options.ignore == ["lm_head"]


@pytest.mark.parametrize(
    ("k", "rotation"), [(32, 32), (64, 64), (96, 32), (128, 64), (192, 64), (576, 64), (40, 0)]
)
def test_what_is_rotated_by_default(k: int, rotation: int) -> None:
    """hk_mxfp4 while loading, with activations that are rounded, in blocks that fit the layer."""
    rounding = "mx_rotated" if rotation else "mx"
    assert choose("hk_mxfp4", "").rounding(k) == (rounding, rotation)
    assert choose("hk_mxfp4", "", activations="none").rounding(k) == ("none", 0)
    assert choose("hk_mxfp4", "", rotation=0).rounding(k) == ("mx", 0)
    assert choose("hk_mxfp4", "", serialized=True).rounding(k) == ("mx", 0)
    assert choose("hk_mxfp4", "", rotation=128, serialized=True).rounding(k)[1] == 128
    assert choose("hk_mxfp8", "").rounding(k) == ("mx", 0)
    assert choose("hk_fp8", "fp8_e4m3fn").rounding(k) == ("token", 0)


@pytest.mark.parametrize(("k", "rotation"), [(96, 32), (128, 64), (576, 64), (4096, 64)])
def test_how_a_heads_inputs_are_rounded(k: int, rotation: int) -> None:
    assert head_rounding("mxfp4", k) == ("mx_rotated", rotation)
    for format in ("fp8_e4m3fn", "mxfp8", "mxfp6_e2m3", "mxfp6_e3m2"):
        assert head_rounding(format, k) == ("none", 0)


ROTATIONS = "0, 32, 64, 128"
NOT_VALID: list[tuple[str, dict[str, Any], str]] = [
    *(("hk_mxfp4", {"head": head}, "one of 16, ") for head in ("fp8", 8, True, "bf16")),
    # of a string each letter would be a pattern, and `*` ignores every layer
    *(
        ("hk_mxfp4", {"ignore": ignore}, "a list of layer names or patterns")
        for ignore in ("*mlp*", "lm_head", [3], {"lm_head": True}, 0)
    ),
    *(
        ("hk_mxfp4", {"rotation": rotation}, f"one of {ROTATIONS}")
        for rotation in (16, "64", False)
    ),
    ("hk_fp8", {"rotation": 64}, "one of 0"),
    # a rotation is an option of its own
    *(("hk_mxfp4", {"activations": name}, "one of none, mx") for name in ROTATED),
    ("hk_fp8", {"activations": "mx"}, "one of none, token"),
    ("hk_fp8", {"format": "mxfp8"}, "one of fp8_e4m3fn, fp8_e4m3fnuz"),
]


@pytest.mark.parametrize(("method", "option", "valid"), NOT_VALID, ids=str)
def test_a_value_that_is_not_valid(method: str, option: dict[str, Any], valid: str) -> None:
    [(name, value)] = option.items()
    with pytest.raises(ValueError) as error:
        choose(method, "fp8_e4m3fn", **option)
    why = f"{method}: {name} {value!r} is not valid: expected {valid}"
    assert str(error.value).startswith(why)


def test_a_regular_expression_that_is_none() -> None:
    why = "hk_mxfp4: ignore 're:*mlp' is not valid (nothing to repeat at position 0): expected a"
    with pytest.raises(ValueError, match=re.escape(why)):
        choose("hk_mxfp4", "", ignore=["lm_head", "re:*mlp"])


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
        (["re:.*[qkv]_proj$"], True),
        (["re:.*qkv_proj"], True),
        (["re:self_attn"], False),  # from the beginning
        (["*.layers.2.*", "model.layers.1.self_attn.o_proj"], False),
    ],
    ids=str,
)
def test_layers_that_are_ignored(patterns: list[str], ignored: bool) -> None:
    assert is_ignored(LAYER, patterns, None) is ignored
    other_names = {"qkv_proj": ["query", "key", "value"]}
    assert is_ignored(LAYER, ["*.query", "*.key", "*.value"], other_names)
    assert not is_ignored(LAYER, ["*.[qkv]_proj"], other_names)


def test_a_merged_layer_of_which_a_part_is_ignored() -> None:
    with pytest.raises(ValueError, match=r"self_attn.q_proj but not model.layers.1.self_attn.k_p"):
        is_ignored(LAYER, ["*.q_proj"], None)
