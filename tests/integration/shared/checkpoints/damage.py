"""Checkpoints with one wrong tensor.

engines/linear/test_checkpoints.py holds that HK finds every such tensor of every scheme.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


@dataclass(frozen=True)
class Damage:
    """One damage. `tensor`: its name in the layer of index 1. `change`: None removes it. `says`: a
    pattern for the error's text about it."""

    scheme: str
    tensor: str
    change: Callable[[torch.Tensor], torch.Tensor] | None
    says: str

    @property
    def name(self) -> str:
        """The name of the tensor in the checkpoint."""
        return f"model.layers.1.{self.tensor}"

    def __str__(self) -> str:
        return f"{self.scheme}-{self.tensor}"

    def make(self, healthy: Path, out: Path) -> Path:
        """Make a copy of the checkpoint `healthy` with this damage."""
        shutil.copytree(healthy, out)
        weights = out / "model.safetensors"
        tensors = load_file(weights)
        tensor = tensors.pop(self.name)
        if self.change is not None:
            tensors[self.name] = self.change(tensor).contiguous()
        save_file(tensors, weights, {"format": "pt"})
        return out


def last_is(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """A change of the last scale, which a check of the first one alone would miss."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        changed = tensor.clone()
        changed.view(-1)[-1] = value
        return changed

    return change


MISSING, SHAPE = "not in the checkpoint", "cannot be loaded"
DAMAGES = [
    Damage("ct-channel-token", "self_attn.k_proj.weight_scale", None, MISSING),
    Damage("fp8-static", "mlp.down_proj.input_scale", None, MISSING),
    Damage("ct-mxfp4", "mlp.up_proj.weight_packed", None, MISSING),
    Damage("fp8-block", "mlp.gate_proj.weight_scale_inv", last_is(-1.0), "positive, finite"),
    Damage("ct-mxfp4", "mlp.gate_proj.weight_scale", last_is(0xFF), r"code 255 \(NaN\)"),
    Damage("ct-channel-token", "self_attn.o_proj.weight_scale", lambda scale: scale[:-1], SHAPE),
    Damage("ct-mxfp4", "mlp.down_proj.weight_packed", lambda codes: codes[:, :-16], SHAPE),
]
