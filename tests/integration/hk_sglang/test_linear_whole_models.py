"""A damaged checkpoint, and what SGLang's API shows of the weights of its Llama, loaded from a checkpoint on disk by its own
loader: one that ties the LM head to the embedding and holds both tables. SGLang's model then has
one module for both, and skips the head's tensor."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.linear import model
from hk_sglang.linear.head import share_table
from safetensors.torch import load_file
from sglang.srt.configs.device_config import DeviceConfig
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.model_executor.model_runner_components.weight_exporter import WeightExporter
from sglang.srt.model_loader.loader import get_model_loader
from sglang.srt.runtime_context import get_parallel

from hk_backend.engine.linear.heads import KEPT_HEAD, Head
from hk_backend.ops.head_format import IN_HEAD
from tests.integration.hk_sglang.linear_layers import installed, rank
from tests.integration.shared.checkpoints import SCHEMES, make
from tests.integration.shared.checkpoints.damage import DAMAGES, Damage
from tests.integration.shared.linear.devices import on_devices
from tests.models import tiny_llama

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
IN_THE_HEAD = Head("mxfp8", IN_HEAD)


@pytest.fixture(scope="module", autouse=True)
def places() -> Iterator[None]:
    alone = SimpleNamespace(is_first_rank=True, is_last_rank=True, rank_in_group=0, world_size=1)
    with rank(), get_parallel().override(pp_rank=0, pp_group=alone), torch.no_grad():
        yield


@pytest.fixture
def route(places: None) -> Iterator[None]:
    with installed():
        yield


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tiny_llama(tmp_path_factory.mktemp("tied"), 64)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    return path


def loaded(path: Path, dtype: str = "float32") -> Any:
    """The model of a checkpoint, as SGLang's loader returns it."""
    config = ModelConfig(str(path), dtype=dtype)
    loader = get_model_loader(LoadConfig(), config)
    return loader.load_model(model_config=config, device_config=DeviceConfig("cpu"))


def by_name(whole: Any, name: str) -> Any:
    """What SGLang's API shows of a weight."""
    exporter: Any = SimpleNamespace(
        get_model=lambda: whole, tp_size=1, _weight_export_unsupported_reason=lambda: None
    )
    return WeightExporter.get_weights_by_name(exporter, name, 5)


@pytest.mark.parametrize("item", DAMAGES, ids=str)
def test_a_damaged_checkpoint(item: Damage, tied: Path, route: None, tmp_path: Path) -> None:
    """The model is not loaded, and the error says which tensor is wrong and how."""
    scheme = SCHEMES[item.scheme]
    path = item.make(make(scheme, tied, tmp_path).checkpoint, tmp_path / str(item))
    with pytest.raises(ValueError) as error:
        loaded(path, scheme.dtypes[-1])
    assert str(error.value).startswith(item.name)
    assert re.search(item.says, str(error.value))


@on_devices
def test_weights_by_their_names(
    device: str, tied: Path, tmp_path: Path, route: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a model whose layers are packed they are the checkpoint's; of quantised ones there are
    none."""
    whole, tensors = loaded(tied, "bfloat16"), load_file(tied / "model.safetensors")
    for module in ("self_attn.q_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
        name = f"model.layers.1.{module}.weight"
        assert by_name(whole, name) == tensors[name].bfloat16().float().tolist()[:5]
    assert all(layer.weight.numel() == 0 for layer in whole.modules() if hasattr(layer, "hk_left"))
    made = make(SCHEMES["ct-channel-token"], tied, tmp_path)
    quantised = loaded(made.checkpoint, "bfloat16")
    assert by_name(quantised, "model.layers.1.self_attn.k_proj.weight") is None
    assert "k_proj.weight: HK has it packed, in a quantised format" in caplog.text


@pytest.mark.parametrize("name", [HEAD, EMBEDDING])
def test_a_table_by_its_name(
    name: str, tied: Path, route: None, caplog: pytest.LogCaptureFixture
) -> None:
    """SGLang's API shows the table under both names, or HK says that it has none any more."""
    tensors = load_file(tied / "model.safetensors")
    assert not torch.equal(tensors[HEAD], tensors[EMBEDDING])
    for asked in (KEPT_HEAD, IN_THE_HEAD):
        whole = loaded(tied)
        model.account(whole, asked)
        assert share_table(whole, asked, "") == ""
        found = by_name(whole, name)
        expected = tensors[EMBEDDING][:5].tolist() if asked is KEPT_HEAD else None
        assert found == expected
    assert f"{name}: HK has it packed, in a quantised format" in caplog.text
