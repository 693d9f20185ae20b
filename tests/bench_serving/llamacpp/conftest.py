"""A tiny random Llama, and copies of it to change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.models import tiny_llama

WEIGHTS = "model.safetensors"
Change = Callable[[Path], None]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny"), 64)


@pytest.fixture
def model(tiny: Path, tmp_path: Path) -> Path:
    """One that the test may change."""
    return Path(shutil.copytree(tiny, tmp_path / "model"))


def config(**changed: Any) -> Change:
    return lambda model: _change(model / "config.json", lambda found: found | changed)


def tokenizer(**changed: Any) -> Change:
    return lambda model: _change(model / "tokenizer.json", lambda found: found | changed)


def bpe(**changed: Any) -> Change:
    """Of the tokenizer's `model`."""
    return lambda model: _change(
        model / "tokenizer.json", lambda found: found | {"model": found["model"] | changed}
    )


def weights(changed: dict[str, torch.Tensor | None]) -> Change:
    def change(model: Path) -> None:
        tensors = load_file(model / WEIGHTS) | changed
        kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        save_file(kept, model / WEIGHTS, {"format": "pt"})

    return change


def _change(path: Path, changed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    path.write_text(json.dumps(changed(json.loads(path.read_text()))))
