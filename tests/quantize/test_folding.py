"""v_proj's rotated outputs spare o_proj its rotation: the same model, to the rounding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.folding import O_PROJ, V_PROJ
from hk_backend.quantize.job import Job
from hk_backend.quantize.method import Method
from hk_backend.quantize.perplexity import load_model
from hk_backend.quantize.settings import Settings
from hk_backend.quantize.source import PROJECTIONS
from hk_backend.reference.rotation import rotated
from tests.quantize.checkpoint import config_of, tensors_of
from tests.quantize.conftest import WEIGHTS


@pytest.fixture
def biased(writable: Path) -> Path:
    """The tiny model with biases of attention's projections."""
    config = config_of(writable) | {"attention_bias": True}
    (writable / "config.json").write_text(json.dumps(config))
    tensors, generator = load_file(writable / WEIGHTS), torch.Generator().manual_seed(3)
    for name in [name for name in tensors if ".self_attn." in name]:
        bias = torch.randn(len(tensors[name]), generator=generator)
        tensors[name.replace("weight", "bias")] = bias
    save_file(tensors, writable / WEIGHTS, {"format": "pt"})
    return writable


class Turned(torch.nn.Module):
    """A layer of `method` before rounding: what is left to rotate is rotated."""

    def __init__(self, method: Method, layer: str, linear: Any, rotation: int) -> None:
        super().__init__()
        self.target = method.target(linear.weight.data, layer)
        self.bias = None if linear.bias is None else method.output(linear.bias.data, layer)
        self.rotation = rotation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = rotated(x, self.rotation, x.dtype) if self.rotation else x
        return torch.nn.functional.linear(x, self.target, self.bias)


@pytest.mark.parametrize("block", [32, 64])
def test_the_model_is_the_same(biased: Path, block: int) -> None:
    """And another one, if o_proj's inputs are rotated twice."""
    tokens = torch.randint(2, 10_000, (1, 60), generator=torch.Generator().manual_seed(0))
    method = Method("rotated", block, folded=True)

    def logits(turned: bool, twice: bool = False) -> torch.Tensor:
        model: Any = load_model(biased)
        for layer in model.model.layers if turned else ():
            for name in PROJECTIONS:
                rotation = block if twice else method.while_serving(name)
                linear = layer.get_submodule(name)
                layer.set_submodule(name, Turned(method, name, linear, rotation))
        with torch.inference_mode():
            found: torch.Tensor = model(tokens).logits
        return found

    exact = logits(turned=False)
    assert (logits(turned=True) - exact).norm() < 1e-5 * exact.norm()
    assert (logits(turned=True, twice=True) - exact).norm() > 0.1 * exact.norm()


def test_biases_are_written_rotated(biased: Path, tmp_path: Path) -> None:
    job = Job(biased, tmp_path / "out", Settings("mxfp4", rotation=64))
    job.run()
    found, original = tensors_of(tmp_path / "out"), load_file(biased / WEIGHTS)
    biases = [name for name in original if name.endswith("bias")]
    assert len(biases) == 4 * 3
    for name in biases:
        expected = original[name]
        if V_PROJ in name:
            expected = rotated(expected, 64).float()
        assert torch.equal(found[name], expected)


@pytest.mark.parametrize(
    ("settings", "folded"),
    [
        (Settings("mxfp4"), True),
        (Settings("mxfp8", method="rotated", rotation=32), True),
        (Settings("mxfp4", method="scales"), False),
        (Settings("mxfp4", rotation=128), False),  # of two heads
        (Settings("mxfp6_e2m3", method="rotated"), False),  # one rotation for all layers
        (Settings("mxfp4", ignore=["*.1.self_attn.[qkv]_proj"]), False),
        (Settings("mxfp4", ignore=["*.1.self_attn.*"]), True),
        (Settings("mxfp4", ignore=["*.o_proj"]), False),
        (Settings("mxfp4", ignore=["*.1.self_attn.o_proj"]), False),
    ],
)
def test_what_is_folded(settings: Settings, folded: bool, model: Path, tmp_path: Path) -> None:
    job = Job(model, tmp_path / "out", settings)
    assert job.method.folded == folded
    rotation = job.method.rotation
    assert job.serving_of(f"model.layers.0.{O_PROJ}").rotation == (0 if folded else rotation)
    assert job.serving_of(f"model.layers.0.{V_PROJ}").rotation == rotation


def test_a_folder_from_before_is_not_taken_up(model: Path, tmp_path: Path) -> None:
    """What an earlier version has rotated otherwise would be read wrongly."""
    Job(model, tmp_path / "out", Settings("mxfp4")).run()
    report = tmp_path / "out" / "hk_quantize.json"
    written = json.loads(report.read_text())
    del written["settings"]["folded"]
    report.write_text(json.dumps(written))
    with pytest.raises(QuantizeError, match=r"started with no rotation folded .*, now it is a"):
        Job(model, tmp_path / "out", Settings("mxfp4")).run()
