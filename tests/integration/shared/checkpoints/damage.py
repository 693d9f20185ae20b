"""Checkpoints with one tensor that is wrong: missing, misshapen, zero, NaN, ..."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

LAYER = "model.layers.1."
Change = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Damage:
    """`tensor`: in the layer of index 1. `change`: None removes it. `says`: about the tensor."""

    scheme: str
    tensor: str
    kind: str
    change: Change | None
    says: str

    @property
    def name(self) -> str:
        """Of the tensor in the checkpoint."""
        return LAYER + self.tensor

    def __str__(self) -> str:
        return f"{self.scheme}-{self.tensor}-{self.kind}"

    def make(self, healthy: Path, out: Path) -> Path:
        """A copy of the checkpoint `healthy` with this damage."""
        shutil.copytree(healthy, out)
        weights = out / "model.safetensors"
        tensors = load_file(weights)
        tensor = tensors.pop(self.name)
        if self.change is not None:
            tensors[self.name] = self.change(tensor).contiguous()
        save_file(tensors, weights, {"format": "pt"})
        return out


def last_is(value: float) -> Change:
    """The last scale, so that one which only looks at the first misses it."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        changed = tensor.clone()
        changed.view(-1)[-1] = value
        return changed

    return change


def missing(scheme: str, tensor: str) -> Damage:
    return Damage(scheme, tensor, "missing", None, "not in the checkpoint")


def bad_scale(scheme: str, tensor: str, value: float) -> Damage:
    return Damage(scheme, tensor, str(value), last_is(value), "positive, finite")


def nan_scale(scheme: str, tensor: str) -> Damage:
    return Damage(scheme, tensor, "0xff", last_is(0xFF), r"code 255 \(NaN\)")


def misshapen(scheme: str, tensor: str, change: Change) -> Damage:
    return Damage(scheme, tensor, "shape", change, "cannot be loaded")


DAMAGES = [
    missing("ct-channel-token", "self_attn.k_proj.weight_scale"),
    missing("fp8-static", "mlp.up_proj.weight_scale"),
    missing("fp8-static", "mlp.down_proj.input_scale"),
    missing("fp8-block", "self_attn.o_proj.weight_scale_inv"),
    missing("quark-mxfp6_e2m3", "self_attn.v_proj.weight_scale"),
    missing("fp8-static", "self_attn.v_proj.weight"),
    missing("ct-mxfp4", "mlp.up_proj.weight_packed"),
    bad_scale("ct-channel-token", "self_attn.v_proj.weight_scale", 0.0),
    bad_scale("ct-channel-token", "mlp.down_proj.weight_scale", torch.nan),
    bad_scale("fp8-static", "self_attn.q_proj.weight_scale", torch.nan),
    bad_scale("fp8-static", "mlp.down_proj.input_scale", 0.0),
    bad_scale("fp8-block", "mlp.gate_proj.weight_scale_inv", -1.0),
    nan_scale("ct-mxfp4", "mlp.gate_proj.weight_scale"),
    nan_scale("quark-mxfp6_e2m3", "mlp.down_proj.weight_scale"),
    misshapen("ct-channel-token", "self_attn.o_proj.weight_scale", lambda scale: scale[:-1]),
    misshapen("ct-channel-token", "self_attn.k_proj.weight", lambda codes: codes[:, :-8]),
    misshapen("ct-mxfp4", "mlp.down_proj.weight_packed", lambda codes: codes[:, :-16]),
]
