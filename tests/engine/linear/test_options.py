"""Options of the hk_* methods, their errors, and the arithmetic of a layer that uses them. Also the
log's lines about layers on an emulated GPU."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
import torch

from hk_backend import ops
from hk_backend.engine.evidence import ALONE, MODELLED, Decision
from hk_backend.engine.evidence.decision import duration
from hk_backend.engine.linear import online
from hk_backend.engine.linear.contest import MODELLED_ROWS, Contests, say_modelled
from hk_backend.engine.linear.online import pack_online
from hk_backend.engine.linear.options import Options, choose, is_ignored, known_options
from hk_backend.engine.linear.route import apply
from hk_backend.engine.linear.shards import CheckpointError
from hk_backend.kernels.catalogue import catalogue
from hk_backend.kernels.gemm_choice import planned
from hk_backend.kernels.gemm_operands import LAYERS, family
from hk_backend.ops import LinearRequest
from hk_backend.quantize.method import Method
from hk_backend.quantize.recipe import RECIPES
from hk_backend.terms.weight_format import ROTATED
from tests.measurements.launches import EMULATED, UNITS, launch, timed

LAYER = "model.layers.1.self_attn.qkv_proj"


@pytest.mark.parametrize(
    ("k", "rotation"), [(32, 32), (64, 64), (96, 32), (128, 64), (192, 64), (576, 64), (40, 0)]
)
def test_what_is_rotated_by_default(k: int, rotation: int) -> None:
    """Only hk_mxfp4 rotates by default: while it loads, if activations are rounded, in blocks that
    fit the layer."""
    rounding = "mx_rotated" if rotation else "mx"
    assert choose("hk_mxfp4", "").rounding(k) == (rounding, rotation)
    assert choose("hk_mxfp4", "", activations="none").rounding(k) == ("none", 0)
    assert choose("hk_mxfp4", "", rotation=0).rounding(k) == ("mx", 0)
    assert choose("hk_mxfp4", "", serialized=True).rounding(k) == ("mx", 0)
    assert choose("hk_mxfp4", "", rotation=128, serialized=True).rounding(k)[1] == 128
    assert choose("hk_mxfp8", "").rounding(k) == ("mx", 0)
    assert choose("hk_fp8", "fp8_e4m3fn").rounding(k) == ("token", 0)


ROTATIONS = "0, 32, 64, 128"
NOT_VALID: list[tuple[str, dict[str, Any], str]] = [
    *(("hk_mxfp4", {"head": head}, "one of 16, ") for head in ("fp8", 8, True, "bf16")),
    # each letter of a string would be a pattern, and `*` ignores every layer
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


class Layer(torch.nn.Module):
    prefix = "model.layers.0.mlp.down_proj"


@pytest.mark.parametrize(
    ("format", "largest", "stands_for"),
    [
        # OCP e2m1 ends at 6. 7 = 1.75 * 2**2 rounds to 2 * 2**2 in its one bit of mantissa, so the
        # scale is 2, and 3.5 is a tie between 3 and 4, which is even. Not rounded: 6, saturated
        ("mxfp4", 7.0, 8.0),
        # OCP e4m3 ends at 448. 496 = 1.9375 * 2**8 is a tie in its three bits, and rounds to 2**9:
        # the scale is 2, and 248 a tie between 240 and 256, which is even. Not rounded: 448
        ("mxfp8", 496.0, 512.0),
    ],
)
def test_mx_scales_are_rounded_to_even(format: str, largest: float, stands_for: float) -> None:
    weight = torch.zeros(8, 32)
    weight[3, 5] = largest
    layer = Layer()
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    pack_online(layer, weight, Options(format, "none"))
    one = torch.zeros(1, 32)
    one[0, 5] = 1
    out = apply(layer, one)
    assert out[0].tolist() == [0, 0, 0, stands_for, 0, 0, 0, 0]


def test_a_rotation_past_float32_is_refused_by_the_layer_s_name() -> None:
    weight = torch.full((8, 64), 3e38)
    layer = Layer()
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    with pytest.raises(CheckpointError, match=f"^{Layer.prefix}: scales: code 255"):
        pack_online(layer, weight, choose("hk_mxfp4", ""))


@pytest.mark.parametrize(
    ("k", "activations", "rotation"),
    [(192, "mx", None), (96, "mx", None), (256, "mx", 128), (256, "none", 32)],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_rotated_as_by_quantize(
    k: int,
    activations: str,
    rotation: int | None,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The layer is that of `--method rotated`, also if it is made a few rows at a time."""
    monkeypatch.setattr(online, "AT_ONCE", 3 * k)
    generator = torch.Generator().manual_seed(0)
    weight, x = (torch.randn(n, k, generator=generator).to(dtype) for n in (40, 9))
    layer = Layer()
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    options = choose("hk_mxfp4", "", activations=activations, rotation=rotation)
    pack_online(layer, weight, options)
    block = rotation or {192: 64, 96: 32}[k]
    method, recipe = Method("rotated", block), RECIPES["mxfp4"]
    codes, scales = method.quantize(method.target(weight), recipe)
    how = {"mx": "mx_rotated", "none": "rotated"}[activations]
    packed = ops.pack_weight(codes, "mxfp4", scales, activations=how, rotation=block)
    assert torch.equal(apply(layer, x), ops.linear(x, packed))
    exact = x.double() @ weight.double().T
    error = (apply(layer, x).double() - exact).norm() / exact.norm()
    # two independent rounding errors of at most 2^-2 of an element, e2m1's half step
    assert error < 2**0.5 / 4


N, K = 256, 512
CASES = {
    "bf16": LinearRequest("cpu", torch.bfloat16, "bf16", N, K),
    "fp16": LinearRequest("cpu", torch.float16, "fp16", N, K),
    "fp8_channel": LinearRequest("cpu", torch.bfloat16, "fp8_e4m3fn", N, K, "token", "channel"),
    "fp8_block": LinearRequest("cpu", torch.bfloat16, "fp8_e4m3fn", N, K, "token_block", "block"),
    "fp8_weight_only": LinearRequest("cpu", torch.bfloat16, "fp8_e4m3fn", N, K, "none", "channel"),
    "mxfp4_weight_only": LinearRequest("cpu", torch.bfloat16, "mxfp4", N, K),
}


def never() -> Any:
    pytest.fail("a contest on an emulated GPU")


def decision_on(name: str) -> Decision:
    contests = Contests("vLLM", lambda: ALONE, lambda is_head: 1)
    return contests.decide("theirs", CASES[name], never)


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hk_backend")
    say_modelled.cache_clear()


@pytest.mark.parametrize("name", CASES)
def test_the_layer_is_served_with_one_line(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with timed(HK_DEVICE=EMULATED):
        for _ in range(2):
            assert decision_on(name).verdict
    (line,) = caplog.messages
    kernels = family(catalogue("gfx950"), LAYERS[name])
    times = (planned(kernels, rows, N, K, UNITS).microseconds for rows in MODELLED_ROWS)
    by_rows = ", ".join(
        f"{m}: {duration(time)}" for m, time in zip(MODELLED_ROWS, times, strict=True)
    )
    assert line.endswith(f" is served: {MODELLED}; HK by rows: {by_rows}")


def test_a_timed_launch_is_named(caplog: pytest.LogCaptureFixture) -> None:
    kernels = family(catalogue("gfx950"), LAYERS["bf16"])
    with timed(launch(kernels, 64, N, K, microseconds=77.0), HK_DEVICE=EMULATED):
        decision_on("bf16")
    assert "64: 77 us" in caplog.text


def test_what_is_measured_or_given_has_no_such_line(caplog: pytest.LogCaptureFixture) -> None:
    with timed(HK_DEVICE=EMULATED, HK_EVIDENCE="ignore"):
        decision_on("bf16")
    with timed(HK_DEVICE="cpu"):
        decision_on("bf16")
    assert not caplog.messages
