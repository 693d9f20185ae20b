"""A configuration that ties the LM head to the embedding, and checkpoints that hold both tables.

SGLang's models then have one module for both, and skip the head's tensor: HK computes the same.
"""

from __future__ import annotations

import json
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
from sglang.srt.environ import envs
from sglang.srt.model_executor.model_runner_components import weight_updater
from sglang.srt.model_executor.model_runner_components.weight_exporter import WeightExporter
from sglang.srt.model_loader.loader import DefaultModelLoader, get_model_loader
from sglang.srt.runtime_context import get_parallel
from torch.nn.functional import linear

from hk_backend.engine.linear.heads import KEPT_HEAD, Head
from hk_backend.ops.head_format import IN_HEAD
from tests.integration.hk_sglang.linear_layers import installed, logits, rank
from tests.models import tiny_llama

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
IN_THE_HEAD = Head("mxfp8", IN_HEAD)
asked_for = pytest.mark.parametrize("asked", [KEPT_HEAD, IN_THE_HEAD], ids=["kept", "in-head"])


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
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that says tied, and has another head."""
    path = tiny_llama(tmp_path_factory.mktemp("tied"), 64)
    config = json.loads((path / "config.json").read_text())
    assert not config["tie_word_embeddings"]
    (path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    return path


@pytest.fixture(scope="module")
def tensors(checkpoint: Path) -> dict[str, torch.Tensor]:
    found = load_file(checkpoint / "model.safetensors")
    assert not torch.equal(found[HEAD], found[EMBEDDING])
    return found


def loaded(path: Path) -> Any:
    config = ModelConfig(str(path), dtype="float32")
    loader = get_model_loader(LoadConfig(), config)
    return loader.load_model(model_config=config, device_config=DeviceConfig("cpu"))


def served(path: Path, asked: Head) -> Any:
    whole = loaded(path)
    model.account(whole, asked)
    assert share_table(whole, asked, "") == ""
    return whole


def x_of(k: int) -> torch.Tensor:
    return torch.randn(5, k, generator=torch.Generator().manual_seed(0))


def assert_is(whole: Any, table: torch.Tensor) -> None:
    """Logits are those of `table`, within what a format of 8 bits rounds."""
    exact = linear(x_of(table.shape[1]), table)
    found = logits(whole, x_of(table.shape[1]))[:, : len(table)]
    assert (found - exact).norm() < 0.05 * exact.norm()


def test_what_stock_computes(checkpoint: Path, tensors: dict[str, torch.Tensor]) -> None:
    whole = loaded(checkpoint)
    assert not hasattr(whole.lm_head, "hk_weight")
    assert_is(whole, tensors[EMBEDDING])


@asked_for
def test_a_start(
    asked: Head, checkpoint: Path, tensors: dict[str, torch.Tensor], route: None
) -> None:
    assert_is(served(checkpoint, asked), tensors[EMBEDDING])


@asked_for
@pytest.mark.parametrize("order", [(HEAD, EMBEDDING), (EMBEDDING, HEAD)], ids=["first", "last"])
@pytest.mark.parametrize("second_loader", [False, True])
def test_an_update(
    asked: Head,
    order: tuple[str, str],
    second_loader: bool,
    checkpoint: Path,
    tensors: dict[str, torch.Tensor],
    route: None,
) -> None:
    """SGLang's Llama has two ways to load, of which a variable selects one."""
    new = {name: tensor.flip(0).contiguous() for name, tensor in tensors.items()}
    arriving = [*order, *({*new} - {*order})]
    with envs.SGLANG_ENABLE_WEIGHT_LOADER_V2.override(second_loader):
        whole = served(checkpoint, asked)
        DefaultModelLoader.load_weights_and_postprocess(
            whole, ((name, new[name]) for name in arriving), torch.device("cpu")
        )
    assert_is(whole, new[EMBEDDING])


def test_a_direct_update_with_an_unknown_name(
    checkpoint: Path, tensors: dict[str, torch.Tensor], route: None
) -> None:
    """The head of one module with the embedding has no name of its own: nothing is changed."""
    whole = served(checkpoint, IN_THE_HEAD)
    new = [(name, torch.zeros_like(tensors[name])) for name in (EMBEDDING, HEAD)]
    with pytest.raises(KeyError, match=HEAD):
        weight_updater._model_load_weights_direct(whole, new)
    assert whole.lm_head.weight.numel() == 0
    assert_is(whole, tensors[EMBEDDING])


@asked_for
@pytest.mark.parametrize("name", [HEAD, EMBEDDING])
def test_a_table_by_its_name(
    asked: Head,
    name: str,
    checkpoint: Path,
    tensors: dict[str, torch.Tensor],
    route: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SGLang's API shows the table under both names, or HK says that it has none any more."""
    whole = served(checkpoint, asked)
    exporter: Any = SimpleNamespace(
        get_model=lambda: whole, tp_size=1, _weight_export_unsupported_reason=lambda: None
    )
    found = WeightExporter.get_weights_by_name(exporter, name, 5)
    if asked is KEPT_HEAD:
        assert torch.equal(torch.tensor(found), tensors[EMBEDDING][:5])
    else:
        assert found is None
        assert f"{name}: HK has it packed, in a quantised format" in caplog.text
