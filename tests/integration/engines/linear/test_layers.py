"""Unquantised layers of either engine, models of them, and methods that quantise while loading.

HK packs a layer and releases its weight, measures it first, or leaves it with a reason.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from hk_backend import reference
from hk_backend.engine.linear.contest import activations
from hk_backend.engine.linear.heads import KEPT_HEAD, Head
from hk_backend.engine.linear.model_files import SaveError
from hk_backend.engine.linear.route import is_attached
from hk_backend.engine.strict import StrictError
from hk_backend.ops import LinearRequest
from hk_backend.routing.routes import routes
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.adapter import LINEAR, Environment
from tests.integration.shared.evidence import Bench, start_again
from tests.integration.shared.linear.devices import in_dtypes
from tests.integration.shared.linear.layers import (
    FORMATS,
    KIND,
    WIDTHS,
    K,
    assert_computes,
    left,
    loaded,
    unloaded,
    values,
    weights,
)

pytestmark = pytest.mark.usefixtures("fresh_linear_route")


@in_dtypes
def test_a_layer_is_packed_and_its_weight_released(device: str, dtype: torch.dtype) -> None:
    """Processing a layer again changes nothing. New weights go into the graphs' buffers."""
    layer = loaded(LINEAR, dtype)
    assert is_attached(layer)
    assert layer.weight.shape == (0,)
    assert layer.weight.dtype == dtype
    layer.quant_method.process_weights_after_loading(layer)
    assert layer.hk_left == ""
    assert_computes(layer, torch.cat(weights(dtype=dtype)))
    assert_computes(layer, torch.cat(weights(dtype=dtype)), values((64,), dtype))
    address = layer.hk_data.data_ptr()
    LINEAR.reload(layer, {"weight": weights(seed=5, dtype=dtype)})
    assert layer.hk_data.data_ptr() == address
    assert_computes(layer, torch.cat(weights(seed=5, dtype=dtype)))
    with pytest.raises(AssertionError):
        assert_computes(layer, torch.cat(weights(dtype=dtype)))


# -- left to the engine


@pytest.mark.parametrize(
    ("weight", "why"),
    [
        (values((64, 1, 4)), "a weight with 3 axes"),
        (torch.ones(64, K, dtype=torch.int8), "a weight in torch.int8"),
    ],
    ids=["axes", "dtype"],
)
def test_a_weight_of_another_kind(weight: torch.Tensor, why: str) -> None:
    layer = unloaded(LINEAR)
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    layer.quant_method.process_weights_after_loading(layer)
    assert left(LINEAR, layer) == why


def test_a_route_that_is_off() -> None:
    routes.disable("linear", "because")
    assert left(LINEAR, loaded(LINEAR)) == "because"


def test_a_method_of_somebody_else() -> None:
    layer = unloaded(LINEAR)

    class Theirs(type(layer.quant_method)):  # type: ignore[misc]
        def apply(self, layer: Any, x: Any, bias: Any = None) -> Any:
            return torch.nn.functional.linear(x, layer.weight, bias)

    layer.quant_method = Theirs()
    LINEAR.load(layer, {"weight": weights()})
    assert left(LINEAR, layer) == "Theirs does its own multiplication"


# -- whole models: counted, checked, and not saved

ODD = "12 input features are not a positive multiple of 8"
EXPERTS = "experts of a mixture: HK has no kernel for them"


def odd() -> Any:
    """Make a layer that HK leaves to the engine."""
    layer = unloaded(LINEAR, k=12)
    return LINEAR.load(layer, {"weight": [values((width, 12)) for width in WIDTHS]})


def test_layers_are_counted_with_their_reasons(environment: Environment) -> None:
    layers = {"one": loaded(LINEAR), "two": loaded(LINEAR), "odd": odd()}
    LINEAR.account(torch.nn.ModuleDict(layers | {"experts": LINEAR.experts()}))
    counters = routes.counters("linear")
    assert counters.layers == 2
    assert counters.layers_left == {ODD: 1, EXPERTS: 1}
    environment(HK_STRICT="1")
    for name, layer, why in (("odd", odd(), ODD), ("experts", LINEAR.experts(), EXPERTS)):
        with pytest.raises(StrictError, match=f"HK_STRICT=1: {name} would fall back: {why}"):
            LINEAR.account(torch.nn.ModuleDict({"one": layers["one"], name: layer}))


def test_packed_layers_are_not_saved(tmp_path: Path) -> None:
    """The engine would write a folder that nothing can load. It still saves other models."""
    model = torch.nn.ModuleDict({"one": loaded(LINEAR)})
    for saver in LINEAR.savers():
        with pytest.raises(SaveError, match="1 linear layers have weights that HK packed"):
            saver.save_model(model, str(tmp_path), None)
    assert not list(tmp_path.iterdir())
    other = torch.nn.ModuleDict({"table": torch.nn.Embedding(8, 8)})
    LINEAR.savers()[0].save_model(other, str(tmp_path))
    assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"]


# -- contests: HK and the engine are measured before a layer is packed


def assert_same_product(bench: Bench, weight: torch.Tensor) -> None:
    """Hold that HK and the engine computed `weight`'s product with the same activations."""
    format = FORMATS[weight.dtype]
    request = LinearRequest("cpu", weight.dtype, format, *weight.shape)
    for rows, outputs in bench.outputs.items():
        expected = reference.linear(activations(rows, request), weight, format)
        for out in outputs:
            assert largest_error(out, expected) <= tolerance(weight.dtype), rows


@pytest.mark.parametrize("dtype", FORMATS)
def test_both_sides_compute_the_layer(bench: Bench, dtype: torch.dtype) -> None:
    assert is_attached(loaded(LINEAR, dtype)), "HK is faster"
    assert routes.counters("linear").served.calls == 0, "a measured call is nobody's"
    (rows,) = bench.rows
    assert rows[:4] == (1, 8, 64, 512)
    assert len(rows) == 5, "the engine's limit is the last"
    assert_same_product(bench, torch.cat(weights(dtype=dtype)))
    with pytest.raises(AssertionError):
        assert_same_product(bench, torch.cat(weights(seed=5, dtype=dtype)))


def test_a_layer_that_the_engine_computes_faster_keeps_its_weight(
    bench: Bench, environment: Environment
) -> None:
    bench.let_the_engine_win()
    layer = loaded(LINEAR)
    assert left(LINEAR, layer).startswith(f"faster without HK: {KIND}: 1 row: HK 2 us")
    assert_computes(layer, torch.cat(weights()))
    environment(HK_STRICT="1")
    with pytest.raises(StrictError, match="gate_up would fall back: faster without HK"):
        LINEAR.account(torch.nn.ModuleDict({"gate_up": layer}))


@pytest.mark.parametrize("by_hk", [True, False])
def test_new_weights_are_not_measured(
    bench: Bench,
    environment: Environment,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    by_hk: bool,
) -> None:
    """A layer stays with HK or the engine, even if nobody knows the times any more.

    A different number of threads would count as a different machine, which does not matter either.
    """
    if not by_hk:
        bench.let_the_engine_win()
    layer = loaded(LINEAR)
    assert is_attached(layer) is by_hk
    start_again(monkeypatch)
    environment(HK_CACHE_DIR=str(tmp_path / "empty"))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    bench.ours, bench.theirs = bench.theirs, bench.ours
    LINEAR.reload(layer, {"weight": weights(seed=5)})
    assert is_attached(layer) is by_hk
    assert len(bench.rows) == 1
    assert_computes(layer, torch.cat(weights(seed=5)))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("by_hk", [True, False])
def test_a_head(bench: Bench, tied: bool, by_hk: bool) -> None:
    """HK and the engine both compute the logits while measured, and the faster one afterwards."""
    if not by_hk:
        bench.let_the_engine_win()
    table = values((300, 96))
    model = LINEAR.headed(KEPT_HEAD, table, tied=tied)
    request = LinearRequest("cpu", torch.bfloat16, "bf16", *table.shape)
    [rows] = bench.rows
    for each in rows:
        expected = reference.linear(activations(each, request), table, "bf16")
        for out in bench.outputs[each]:
            assert largest_error(out[:, : len(table)], expected) <= tolerance(torch.bfloat16)
    assert is_attached(model.lm_head) is by_hk
    if not by_hk:
        LINEAR.account(model)
        [why] = routes.counters("linear").layers_left
        assert re.match(r"faster without HK: linear bf16 \d+x96 from bfloat16, logits: ", why)
    x = values((3, 96), seed=9)
    logits = LINEAR.logits(model, x)[:, : len(table)]
    assert largest_error(logits, reference.linear(x, table, "bf16")) <= tolerance(torch.bfloat16)


def test_a_weight_that_is_asked_for_by_name_is_not_measured(bench: Bench) -> None:
    bench.let_the_engine_win()
    table = values((64, 96))
    shards: Any = {"weight": list(table.split(32))}
    config = LINEAR.online("hk_fp8")
    layer = LINEAR.load(LINEAR.merged(config, torch.bfloat16, 96, [32, 32]), shards)
    assert is_attached(layer)
    assert is_attached(LINEAR.headed(Head("fp8_e4m3fn"), table).lm_head)
    assert bench.rows == []


# -- the methods `--quantization hk_...`, and their options


@pytest.mark.parametrize(
    ("name", "format", "activations"),
    [
        ("hk_fp8", "fp8_e4m3fn", "token"),
        ("hk_mxfp8", "mxfp8", "mx"),
        ("hk_mxfp6", "mxfp6_e2m3", "mx"),
        ("hk_mxfp4", "mxfp4", "mx"),
    ],
)
def test_a_method_by_its_name(name: str, format: str, activations: str) -> None:
    config = LINEAR.online(name)
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
def test_an_option_that_is_not_valid(name: str, option: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError) as error:
        LINEAR.config_of({"quant_method": name, **option})
    assert str(error.value).startswith(f"{name}: {why}")


PARTS = [32, 16, 16]


@pytest.mark.parametrize(
    "ignored",
    [["*.k_proj", "*.q_proj", "*.v_proj"], ["model.qkv_proj"], ["*.[qkv]_proj"]],
    ids=str,
)
def test_layers_that_are_ignored(ignored: list[str]) -> None:
    config = LINEAR.config_of({"quant_method": "hk_fp8", "ignore": ignored})
    layer = LINEAR.merged(config, torch.bfloat16, 64, PARTS)
    assert type(layer.quant_method).__name__ == "UnquantizedLinearMethod"
    other = LINEAR.merged(config, torch.bfloat16, 64, [32, 16], prefix="model.gate_up_proj")
    assert type(other.quant_method).__name__.startswith("HK")


def test_layers_that_cannot_be_quantised(environment: Environment) -> None:
    """A layer that HK cannot quantise is an error with the layer's name and a remedy.

    Nobody else can compute these formats.
    """
    some = LINEAR.config_of({"quant_method": "hk_fp8", "ignore": ["*.q_proj"]})
    with pytest.raises(ValueError, match=r"model.q_proj but not model.k_proj"):
        LINEAR.merged(some, torch.bfloat16, 64, PARTS)
    odd = r"model\.qkv_proj: --quantization hk_mxfp4: 40 input"
    for config in (LINEAR.config_of({"quant_method": "hk_mxfp4"}), LINEAR.online("hk_mxfp4")):
        with pytest.raises(ValueError, match=odd):
            LINEAR.merged(config, torch.bfloat16, 40, PARTS)
    environment(HK_DEVICE="emulated:gfx942")
    with pytest.raises(ValueError, match="no kernels for 'gfx942'"):
        LINEAR.merged(LINEAR.online("hk_fp8"), torch.bfloat16, 64, PARTS)


def test_experts() -> None:
    """Layers of experts are an error: nothing would quantise them, and nothing would say so."""
    name = "model.layers.0.mlp.experts"
    with pytest.raises(ValueError, match=f"{name}: --quantization hk_fp8: HK has no kernel for"):
        LINEAR.online("hk_fp8").get_quant_method(LINEAR.experts(), name)
