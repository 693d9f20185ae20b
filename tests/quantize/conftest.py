"""The models that the tests quantise: a tiny Llama in float32 and its bfloat16 twin."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.models import tiny_llama
from tests.quantize.checkpoint import WEIGHTS, change_config, change_weights


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three layers, hidden size 256, head size 64, float32."""
    return tiny_llama(tmp_path_factory.mktemp("models"), 64)


@pytest.fixture(scope="session")
def half_model(model: Path) -> Path:
    """The same in bfloat16, in two files with an index, as large models come."""
    copy = model.with_name("tiny-llama-bf16")
    shutil.copytree(model, copy)
    tensors = {name: tensor.bfloat16() for name, tensor in load_file(copy / WEIGHTS).items()}
    (copy / WEIGHTS).unlink()
    names = sorted(tensors)
    files = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in files.items():
        save_file({name: tensors[name] for name in part}, copy / file, {"format": "pt"})
    weight_map = {name: file for file, part in files.items() for name in part}
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return copy


@pytest.fixture
def writable(model: Path, tmp_path: Path) -> Path:
    """A copy of `model` that a test may damage."""
    return Path(shutil.copytree(model, tmp_path / "model"))


@pytest.fixture(params=[False, True], ids=["untied", "tied"])
def scorer(request: pytest.FixtureRequest, writable: Path) -> Path:
    """A reward model: one score of a text. Those of small models may come from a tied one."""
    change_weights(
        writable, {"lm_head.weight": None, "score.weight": torch.linspace(-1, 1, 256)[None]}
    )
    tied = {"tie_word_embeddings": request.param}
    change_config(writable, architectures=["LlamaForSequenceClassification"], num_labels=1, **tied)
    return writable


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(
        "Bananas are not rivets; a vocabulary of invented words still has letters. " * 8
    )
    return path


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
