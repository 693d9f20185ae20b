"""Whole checkpoints on disk, sound and damaged, through SGLang's own loader and Llama."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.linear import model
from safetensors.torch import load_file
from sglang.srt.configs.device_config import DeviceConfig
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.model_executor.model_runner_components.weight_exporter import WeightExporter
from sglang.srt.model_loader.loader import get_model_loader
from sglang.srt.runtime_context import get_parallel

from hk_backend.routing.routes import routes
from tests.integration.hk_sglang.linear_checkpoints import UNKNOWN_SCHEMES
from tests.integration.hk_sglang.linear_layers import installed, rank
from tests.integration.shared.checkpoints import SCHEMES, Made, make
from tests.integration.shared.checkpoints.damage import DAMAGES, Damage
from tests.integration.shared.linear.devices import DEVICES, unserved
from tests.models import TINY_LAYERS, tiny_llama

Maker = Callable[[str], Made]


@pytest.fixture(scope="module", autouse=True)
def route() -> Iterator[None]:
    alone = SimpleNamespace(is_first_rank=True, is_last_rank=True, rank_in_group=0, world_size=1)
    places = {"pp_rank": 0, "pp_group": alone}
    with rank(), installed(), get_parallel().override(**places), torch.no_grad():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def made(folder: Path) -> Maker:
    source = tiny_llama(folder / "models", 64)
    return lambda scheme: make(SCHEMES[scheme], source, folder)


def loaded(path: Path, scheme: str = "") -> Any:
    """The model of a checkpoint, as SGLang's loader returns it."""
    dtype = SCHEMES[scheme].dtypes[-1] if scheme else "float32"
    config = ModelConfig(str(path), dtype=dtype)
    loader = get_model_loader(LoadConfig(), config)
    return loader.load_model(model_config=config, device_config=DeviceConfig("cpu"))


@pytest.mark.parametrize(
    ("device", "scheme"),
    [
        (device, scheme)
        for device in DEVICES
        for scheme in SCHEMES
        if scheme not in UNKNOWN_SCHEMES and not unserved(device, SCHEMES[scheme].scale_kind)
    ],
    indirect=["device"],
)
def test_every_layer_of_a_sound_checkpoint(device: str, scheme: str, made: Maker) -> None:
    routes.reset()
    model.account(loaded(made(scheme).checkpoint, scheme))
    counters = routes.counters("linear")
    assert (counters.layers, dict(counters.layers_left)) == (4 * TINY_LAYERS + 1, {})


@pytest.mark.parametrize(
    ("device", "item"),
    [
        (device, item)
        for device in DEVICES
        for item in DAMAGES
        if not unserved(device, SCHEMES[item.scheme].scale_kind)
    ],
    indirect=["device"],
    ids=str,
)
def test_a_damaged_checkpoint(device: str, item: Damage, made: Maker, tmp_path: Path) -> None:
    """The model is not loaded, and the error says which tensor is wrong and how."""
    path = item.make(made(item.scheme).checkpoint, tmp_path / str(item))
    with pytest.raises(ValueError) as error:
        loaded(path, item.scheme)
    assert str(error.value).startswith(item.name)
    assert re.search(item.says, str(error.value))


def test_weights_by_their_names(folder: Path) -> None:
    """What SGLang's API shows of a model whose layers are packed is the checkpoint."""
    path = tiny_llama(folder / "models", 64)
    whole = loaded(path)
    exporter: Any = SimpleNamespace(
        get_model=lambda: whole, tp_size=1, _weight_export_unsupported_reason=lambda: None
    )
    tensors = load_file(path / "model.safetensors")
    for module in ("self_attn.q_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
        name = f"model.layers.1.{module}.weight"
        found = WeightExporter.get_weights_by_name(exporter, name, 5)
        assert found == tensors[name].float().tolist()[:5]
    assert all(layer.weight.numel() == 0 for layer in whole.modules() if hasattr(layer, "hk_left"))
