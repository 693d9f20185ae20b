"""New weights for a running server: SGLang's updates, whole or in part, and folded checkpoints.

Some of SGLang's options and requests are refused beside a folded checkpoint.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from hk_sglang.linear.model import EMBEDDINGS, _tokenize, adapters_and_readers
from sglang.srt.managers.io_struct import EmbeddingReqInput, GenerateReqInput
from sglang.srt.managers.scheduler_components import weight_updater as weight_updates
from sglang.srt.managers.scheduler_components.weight_updater import SchedulerWeightUpdaterManager
from sglang.srt.managers.tokenizer_manager import TokenizerManager
from sglang.srt.model_executor.model_runner_components import (
    weight_updater,
)
from sglang.srt.model_loader.loader import DefaultModelLoader, ShardedStateLoader
from sglang.srt.server_args import ServerArgs

from hk_backend import reference
from hk_backend.engine.patching import MARK
from hk_backend.quantize.recipe import RECIPES
from hk_backend.routing.shadow_check import largest_error, tolerance
from hk_backend.terms.folds import ALL, FOLD_KEY, HEADS
from tests.integration.hk_sglang.linear_checkpoints import CHECKPOINTS
from tests.integration.hk_sglang.linear_layers import config_of, installed, loaded, online
from tests.integration.shared.checkpoints import WIDTHS, Shards, x_of
from tests.integration.shared.linear.devices import in_schemes, on_devices
from tests.integration.shared.linear.layers import check_shards
from tests.integration.shared.linear.named_tensors import ATTENTION, Model, bfloat16, named, without

pytestmark = pytest.mark.usefixtures("linear_route")


def updated(layer: Any, tensors: dict[str, torch.Tensor]) -> None:
    """Update `layer` as SGLang does between begin_weight_update and end_weight_update."""
    model, cpu = Model(layer), torch.device("cpu")
    DefaultModelLoader.restore_weights_before_loading(model, cpu)
    model.load_weights(tensors.items())
    DefaultModelLoader.postprocess_weights(model, cpu)


def held(layer: Any) -> int:
    return sum(parameter.numel() for parameter in layer.parameters())


@pytest.mark.parametrize(("rotation", "served"), [(64, True), (32, False)])
def test_a_checkpoint_rotated_otherwise(rotation: int, served: bool, tmp_path: Path) -> None:
    """An update with another rotation fails with a reason, and the server goes on."""
    recipe = RECIPES["mxfp4"]
    new = {"quantization_config": recipe.quantization_config("mx", [], rotation)}
    (tmp_path / "config.json").write_text(json.dumps(new))
    ours = SimpleNamespace(quantization_config=recipe.quantization_config("mx", [], 64))
    updater = SimpleNamespace(
        model_config=SimpleNamespace(hf_config=ours),
        _assert_weight_cache_inactive=Mock(side_effect=InterruptedError),
    )
    update = partial(weight_updater.WeightUpdater.update_weights_from_disk, updater)
    if served:
        with pytest.raises(InterruptedError):  # SGLang's own update begins
            update(str(tmp_path), "auto")
        return
    done, why = update(str(tmp_path), "auto")
    assert not done
    assert "are rotated (Linear: 32), those that they would replace are rotated (Linear: 64)" in why


# -- unquantised


def assert_computes(layer: Any, weights: dict[str, torch.Tensor]) -> None:
    expected = reference.linear(x_of(), torch.cat(list(weights.values())), "bf16")
    assert largest_error(layer(x_of())[0], expected) <= tolerance(torch.bfloat16)
    assert held(layer) == 0, "the layer keeps the weights that were loaded"


@on_devices
def test_weights_that_are_not_quantised(device: str) -> None:
    """New weights are packed into the buffers that compiled graphs hold."""
    layer = loaded(None, bfloat16())
    model, address = Model(layer), layer.hk_data.data_ptr()
    updated(layer, bfloat16(seed=5))
    assert_computes(layer, bfloat16(seed=5))
    # one shard of three: the others stay what they were, to the bit
    name, before = f"{ATTENTION}.k_proj.weight", layer(x_of())[0].split(WIDTHS, -1)
    updated(layer, {name: bfloat16(seed=6)[name]})
    after = layer(x_of())[0].split(WIDTHS, -1)
    assert torch.equal(after[0], before[0])
    assert torch.equal(after[2], before[2])
    assert_computes(layer, bfloat16(seed=5) | {name: bfloat16(seed=6)[name]})
    # an update without tensors
    updated(layer, {})
    assert_computes(layer, bfloat16(seed=5) | {name: bfloat16(seed=6)[name]})
    # `load_format="direct"`: names and shapes are the model's own
    whole = torch.cat(list(bfloat16(seed=7).values()))
    weight_updater._model_load_weights_direct(model, [("layer.weight", whole)])
    DefaultModelLoader.postprocess_weights(model, torch.device("cpu"))
    assert_computes(layer, bfloat16(seed=7))
    # a layer is packed before the next one's weights arrive: the model is never twice in memory
    items = list(bfloat16(seed=8).items())
    model.load_weights(items[:2])
    assert held(layer) > 0
    model.load_weights(items[2:])
    assert_computes(layer, bfloat16(seed=8))
    assert layer.hk_data.data_ptr() == address


@on_devices
def test_memory_that_is_released_and_resumed(device: str) -> None:
    """SGLang copies a model's buffers before it releases their memory, but not packed weights.

    Copies of those would keep the memory in use. The update that follows brings the lost weights
    back.
    """
    layer = loaded(None, bfloat16())
    layer.register_buffer("steps", torch.arange(3))
    state = weight_updates._export_static_state(layer)
    assert [name for name, _ in state["buffers"]] == ["steps"]
    for buffer in layer.buffers():
        buffer.zero_()
    weight_updates._import_static_state(layer, state)
    assert torch.equal(layer.steps, torch.arange(3))
    updated(layer, bfloat16(seed=5))
    assert_computes(layer, bfloat16(seed=5))


# -- quantised


def other(shards: Shards) -> Shards:
    """Other numbers in the same places: a checkpoint of the next training step."""
    flipped = {}
    for name, tensors in shards.items():
        is_scale = tensors[0].dtype == torch.float32
        flipped[name] = [
            tensor * 0.5 if is_scale else tensor.view(torch.uint8).flip(-1).view(tensor.dtype)
            for tensor in tensors
        ]
    return flipped


@in_schemes(CHECKPOINTS, ["fp8-static", "fp8-block", "ct-channel-token", "hk-mxfp4"])
def test_all_tensors_of_a_quantised_layer(device: str, name: str) -> None:
    checkpoint = CHECKPOINTS[name]
    first, second = checkpoint.tensors(), other(checkpoint.tensors())
    layer = loaded(config_of(checkpoint.config), named(first))
    updated(layer, named(second))
    assert held(layer) == 0
    check_shards(checkpoint.layers(x_of(), second), layer(x_of())[0])
    with pytest.raises(AssertionError):
        check_shards(checkpoint.layers(x_of(), first), layer(x_of())[0])


@pytest.mark.parametrize("name", ["fp8-static", "hk-mxfp4", "online"])
def test_a_shard_that_an_update_lacks(name: str) -> None:
    """The old values are gone: the update is refused, and the layer computes as before.

    Another update succeeds.
    """
    if name == "online":
        config, first, second = online("hk_fp8"), bfloat16(), bfloat16(seed=5)
    else:
        tensors = CHECKPOINTS[name].tensors()
        config = config_of(CHECKPOINTS[name].config)
        first, second = named(tensors), named(other(tensors))
    layer = loaded(config, first)
    before = layer(x_of())[0]
    gone = f"{ATTENTION}.k_proj.weight"
    with pytest.raises(ValueError, match=f"{gone}: not in the checkpoint"):
        updated(layer, without(second, gone))
    assert torch.equal(layer(x_of())[0], before)
    updated(layer, second)
    assert torch.equal(layer(x_of())[0], loaded(config, second)(x_of())[0])


def test_the_server_survives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang's scheduler would end on an exception there."""
    layer = loaded(online("hk_fp8"), bfloat16())
    gone = f"{ATTENTION}.k_proj.weight"
    runner = SimpleNamespace(
        weight_updater=SimpleNamespace(
            end_weight_update=lambda run_post_load: updated(layer, without(bfloat16(5), gone))
        )
    )
    manager: Any = object.__new__(SchedulerWeightUpdaterManager)
    monkeypatch.setattr(
        SchedulerWeightUpdaterManager, "_select_runners", lambda self, _: [("target", runner)]
    )
    barriers: list[Any] = []
    monkeypatch.setattr(torch.distributed, "barrier", lambda *, group: barriers.append(group))
    manager._session = SimpleNamespace(selector="all", loaded_weights=True)
    manager.tp_cpu_group = "ranks"
    answer = manager.end_weight_update(SimpleNamespace())
    assert not answer.success
    assert answer.message.startswith(
        f"{gone}: not in the checkpoint. The weights are only partly updated"
    )
    assert manager._session is None
    assert barriers == ["ranks"]


def test_saving_needs_no_loader() -> None:
    """SGLang calls `save_model` on its class, others on a loader: it must stay static."""
    with installed():
        assert isinstance(vars(ShardedStateLoader)["save_model"], staticmethod)


# -- folded checkpoints


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ({}, ("", "")),
        ({"speculative_algorithm": "NGRAM"}, ("", "")),
        ({"speculative_algorithm": "STANDALONE"}, ("", "")),
        ({"speculative_algorithm": "EAGLE"}, ("", "--speculative-algorithm EAGLE")),
        ({"enable_lora": True}, ("LoRA adapters", "")),
        ({"lora_paths": ["a"]}, ("LoRA adapters", "")),
        ({"is_embedding": True}, ("", "--is-embedding")),
        ({"enable_return_hidden_states": True}, ("", "--enable-return-hidden-states")),
        ({"return_hidden_states_mode": "last"}, ("", "--return-hidden-states-mode")),
        ({"enable_return_aux_hidden_states": True}, ("", "--enable-return-aux-hidden-states")),
    ],
)
def test_strangers(flags: dict[str, Any], found: tuple[str, str]) -> None:
    """SGLang's arguments, as a user sets them, show adapters and readers of embeddings."""
    assert adapters_and_readers(ServerArgs(model_path="dummy", **flags)) == found
    names = ("speculative_algorithm", "enable_lora", "lora_paths")
    older = SimpleNamespace(**dict.fromkeys(names), is_embedding=False)
    assert adapters_and_readers(older) == ("", ""), "an SGLang with fewer options"


def test_every_request_is_looked_at() -> None:
    """The installed route looks at each request where SGLang turns it into tokens.

    SGLang's requests have the fields that it looks at.
    """
    for kind in (GenerateReqInput, EmbeddingReqInput):
        assert set(EMBEDDINGS) <= {field.name for field in fields(kind)}
    with installed():
        assert hasattr(TokenizerManager._tokenize_one_request, MARK)


async def tokens(manager: Any, request: Any) -> str:
    """A stand-in for SGLang's method, and a coroutine like it."""
    return "tokens"


@pytest.mark.parametrize(
    ("fold", "embeds", "served"),
    [(ALL, [[0.0]], False), (ALL, None, True), (HEADS, [[0.0]], True), (None, [[0.0]], True)],
)
@pytest.mark.parametrize("name", ["input_embeds", "positional_embed_overrides"])
def test_a_request_of_embeddings(name: str, fold: str | None, embeds: Any, served: bool) -> None:
    """No flag announces such a request: HK looks at each one, and refuses it alone."""
    quantization = {FOLD_KEY: fold} if fold else {}
    model = SimpleNamespace(hf_config=SimpleNamespace(quantization_config=quantization))
    manager = SimpleNamespace(model_config=model)
    request = SimpleNamespace(**{name: embeds})
    if served:
        assert asyncio.run(_tokenize(tokens, manager, request)) == "tokens"
        return
    with pytest.raises(ValueError, match=r"hk_folded 'all'.*is not valid with " + name):
        _tokenize(tokens, manager, request)
