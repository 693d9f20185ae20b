"""Tensors that a checkpoint lacks, NaN in one that is quantised while loading, and no checkpoint at
all (`--load-format dummy`): vLLM's own loaders, with what they read given to them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.config import LoadConfig, get_current_vllm_config
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader
from vllm.model_executor.model_loader.reload import finalize_layerwise_processing

from hk_backend.engine.linear.route import is_attached
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.hk_vllm.linear_layers import config_of, installed, merged, one_rank
from tests.integration.shared.linear_checkpoints import CHECKPOINTS, WIDTHS, K, Shards

QKV, GATE_UP = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")
ATTENTION, MLP = "model.layers.0.self_attn", "model.layers.0.mlp"
ONLINE = ("hk_fp8", "hk_mxfp8", "hk_mxfp6", "hk_mxfp4")


@pytest.fixture(scope="module", autouse=True)
def route(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with one_rank(tmp_path_factory.mktemp("rank")), installed(), torch.no_grad():
        yield


class Model(torch.nn.Module):
    """One merged layer, loaded as vLLM's models load theirs."""

    def __init__(self, layer: Any, shards: tuple[str, ...]) -> None:
        super().__init__()
        self.layer, self.shards = layer, shards

    def load_weights(self, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        for name, tensor in weights:
            module, _, parameter = name.rpartition(".")
            own = module.rpartition(".")[2]
            index = self.shards.index(own) if own in self.shards else None
            held = getattr(self.layer, parameter)
            held.weight_loader(held, tensor, *(() if index is None else (index,)))


def loaded(
    config: Any,
    tensors: dict[str, torch.Tensor],
    prefix: str = f"{ATTENTION}.qkv_proj",
    online: bool = False,
) -> Any:
    """The layer of a model whose checkpoint holds `tensors`."""
    shards = QKV if prefix.endswith("qkv_proj") else GATE_UP
    layer = merged(config, torch.bfloat16, K, WIDTHS[: len(shards)], prefix=prefix)
    model = Model(layer, shards)
    loader = DefaultModelLoader(LoadConfig())
    loader._get_weights_iterator = lambda source: iter(tensors.items())
    facts = SimpleNamespace(
        model="", revision=None, quantization="", is_moe=False, multimodal_config=None
    )
    loader.load_weights(model, facts)
    if online:
        finalize_layerwise_processing(model, SimpleNamespace(dtype=torch.bfloat16))
    layer.quant_method.process_weights_after_loading(layer)
    return layer


def named(
    shards: Shards, parent: str = ATTENTION, names: tuple[str, ...] = QKV
) -> dict[str, torch.Tensor]:
    """A checkpoint's tensors by their names."""
    return {
        f"{parent}.{name}.{parameter}": value
        for parameter, values in shards.items()
        for name, value in zip(names, values, strict=False)
    }


def without(tensors: dict[str, torch.Tensor], *names: str) -> dict[str, torch.Tensor]:
    assert set(names) <= set(tensors)
    return {name: tensor for name, tensor in tensors.items() if name not in names}


def refusal(config: Any, tensors: dict[str, torch.Tensor], **options: Any) -> str:
    with pytest.raises(ValueError) as error:
        loaded(config, tensors, **options)
    return str(error.value)


# -- a weight


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_weight_of_a_shard(name: str) -> None:
    checkpoint = CHECKPOINTS[name]
    gone = f"{ATTENTION}.k_proj.{checkpoint.weight}"
    tensors = without(named(checkpoint.tensors()), gone)
    assert refusal(config_of(checkpoint.config), tensors) == f"{gone}: not in the checkpoint"


def bfloat16() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    weights = [torch.randn(width, K, generator=generator).bfloat16() for width in WIDTHS]
    return named({"weight": weights})


def online(method: str) -> Any:
    from vllm.model_executor.layers.quantization import get_quantization_config

    return get_quantization_config(method).from_config_dict_json("{}")


@pytest.mark.parametrize("gone", [("q_proj",), ("k_proj", "v_proj"), QKV])
@pytest.mark.parametrize("method", ONLINE)
def test_a_weight_that_is_quantised_while_loading(method: str, gone: tuple[str, ...]) -> None:
    names = [f"{ATTENTION}.{name}.weight" for name in gone]
    found = refusal(online(method), without(bfloat16(), *names), online=True)
    assert found == f"{names[0]}: not in the checkpoint"


@pytest.mark.parametrize("method", ONLINE)
def test_a_merged_weight_that_is_quantised_while_loading(method: str) -> None:
    whole = torch.cat(list(bfloat16().values()))
    layer = loaded(online(method), {f"{ATTENTION}.qkv_proj.weight": whole}, online=True)
    assert is_attached(layer)


# -- a scale of FP8


@pytest.mark.parametrize("gone", [("q_proj",), ("v_proj",), ("k_proj", "v_proj"), QKV])
@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("fp8-dynamic", "weight_scale"),
        ("fp8-static", "weight_scale"),
        ("fp8-static", "input_scale"),
        ("quark-fp8-static", "input_scale"),
        ("modelopt-fp8", "input_scale"),
    ],
)
def test_scales_of_shards(name: str, parameter: str, gone: tuple[str, ...]) -> None:
    checkpoint = CHECKPOINTS[name]
    names = [f"{ATTENTION}.{shard}.{parameter}" for shard in gone]
    tensors = without(named(checkpoint.tensors()), *names)
    assert refusal(config_of(checkpoint.config), tensors) == f"{names[0]}: not in the checkpoint"


@pytest.mark.parametrize("parameter", ["weight_scale", "input_scale"])
def test_the_second_scale_of_two(parameter: str) -> None:
    """One scale for both shards is what a merged tensor has: these came in two."""
    checkpoint = CHECKPOINTS["fp8-static"]
    gone = f"{MLP}.up_proj.{parameter}"
    tensors = without(named(checkpoint.tensors(), MLP, GATE_UP), gone)
    found = refusal(config_of(checkpoint.config), tensors, prefix=f"{MLP}.gate_up_proj")
    assert found == f"{gone}: not in the checkpoint"


def test_a_model_that_renames_its_parts() -> None:
    checkpoint = CHECKPOINTS["fp8-dynamic"]
    parent = "model.language_model.layers.0.self_attn"
    tensors = named(checkpoint.tensors(), parent)
    rest = without(tensors, *(f"{parent}.{name}.weight_scale" for name in QKV[1:]))
    prefix = "language_model.model.layers.0.self_attn"
    found = refusal(config_of(checkpoint.config), rest, prefix=f"{prefix}.qkv_proj")
    assert found == f"{prefix}.k_proj.weight_scale: not in the checkpoint"


def test_a_merged_layer_with_one_scale() -> None:
    """Some checkpoints hold q, k and v as one tensor: vLLM loads its scale as the first shard's."""
    checkpoint = CHECKPOINTS["fp8-dynamic"]
    weights, scale = checkpoint.tensors()["weight"], torch.tensor(0.01)
    merged_names = {
        f"{ATTENTION}.qkv_proj.weight": torch.cat(weights),
        f"{ATTENTION}.qkv_proj.weight_scale": scale,
    }
    layer = loaded(config_of(checkpoint.config), merged_names)
    x = torch.randn(4, K, generator=torch.Generator().manual_seed(1)).bfloat16()
    expected = checkpoint.expected(x, {"weight": weights, "weight_scale": [scale] * 3})
    assert largest_error(layer(x), expected) <= tolerance(torch.bfloat16)


# -- numbers that are none


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf], ids=str)
@pytest.mark.parametrize("method", ONLINE)
def test_a_weight_that_is_not_finite(method: str, bad: float) -> None:
    """The message is about the weight, which the checkpoint has, not about a scale."""
    tensors, name = bfloat16(), f"{ATTENTION}.k_proj.weight"
    tensors[name][3, 5] = bad
    found = refusal(online(method), tensors, online=True)
    assert found == f"{name}: {bad} at [3, 5] is not valid: expected finite numbers"


# -- no checkpoint


def dummy(config: Any) -> Any:
    """A layer as `--load-format dummy` leaves it."""
    layer = merged(config, torch.bfloat16, K, WIDTHS)
    DummyModelLoader(LoadConfig(load_format="dummy")).load_weights(Model(layer, QKV), None)
    layer.quant_method.process_weights_after_loading(layer)
    return layer


def assert_finite(layer: Any) -> None:
    assert is_attached(layer)
    x = torch.randn(4, K, generator=torch.Generator().manual_seed(1)).bfloat16()
    assert bool(layer(x).isfinite().all())


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_dummy_values(name: str) -> None:
    assert_finite(dummy(config_of(CHECKPOINTS[name].config)))


@pytest.mark.parametrize("method", ONLINE)
def test_dummy_values_that_are_quantised(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_current_vllm_config().load_config, "load_format", "dummy")
    assert_finite(dummy(online(method)))
