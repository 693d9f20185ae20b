"""Models to quantise, runs, and output folders that are read by index and config alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.job import Job
from hk_backend.quantize.settings import Settings

WEIGHTS = "model.safetensors"
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


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


def change_config(model: Path, **changed: Any) -> None:
    (model / "config.json").write_text(json.dumps(config_of(model) | changed))


def change_weights(model: Path, changed: dict[str, torch.Tensor | None]) -> None:
    """Replaces tensors of a model; None removes one."""
    tensors = load_file(model / WEIGHTS) | changed
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_file(kept, model / WEIGHTS, {"format": "pt"})


Damage = Callable[[Path], None]


def config(**changed: Any) -> Damage:
    return lambda model: change_config(model, **changed)


def weights(changed: dict[str, torch.Tensor | None], **more: Any) -> Damage:
    def change(model: Path) -> None:
        change_config(model, **more)
        change_weights(model, changed)

    return change


def finished(model: Path, out: Path, settings: Settings) -> Job:
    job = Job(model, out, settings)
    job.run()
    return job


def refused(why: str, model: Path, out: Path, settings: Settings) -> None:
    """Assert that a run is refused before it writes anything."""
    with pytest.raises(QuantizeError, match=why):
        Job(model, out, settings)
    assert not out.exists()


class Interrupted(Exception):
    pass


def stop_after(bytes_read: int) -> Any:
    """Progress that interrupts the run once so much of the source has been read."""
    done = 0

    def advance(name: str, count: int) -> None:
        nonlocal done
        done += count
        if done > bytes_read:
            raise Interrupted

    return advance
