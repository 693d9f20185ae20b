"""Reads an output folder as an outsider: by its index and its config, nothing of the writer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file


def tensors_of(directory: Path) -> dict[str, torch.Tensor]:
    """All tensors, each out of the file that the index names."""
    index = json.loads((directory / "model.safetensors.index.json").read_text())["weight_map"]
    files = {file: load_file(directory / file) for file in set(index.values())}
    assert {name for file in files.values() for name in file} == set(index)
    return {name: files[file][name] for name, file in index.items()}


def config_of(directory: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((directory / "config.json").read_text())
    return config


def contents(directory: Path) -> dict[str, bytes]:
    """Every file, byte for byte."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}
