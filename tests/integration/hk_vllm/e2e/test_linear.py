"""Linear layers in running engines: LoRA, reloaded weights, and quantisation while loading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.integration.hk_vllm.e2e.engine import FORKS
from tests.integration.shared.e2e.compare import assert_true_answers, assert_true_logprobs
from tests.integration.shared.e2e.engine import HK, tail
from tests.integration.shared.e2e.quantized import error_in
from tests.integration.shared.e2e.rewritten import fp8_values, mx_values, rewritten
from tests.integration.shared.e2e.rounding import assert_as_exact, error_of
from tests.integration.shared.e2e.scenario import Answer, RoundResult, ScenarioResult
from tests.integration.shared.linear.devices import GFX950
from tests.models import TINY_LAYERS, random_prompts, tiny_llama
from tests.proof.measured import note_engine

QUANTIZATION: dict[str, dict[str, str]] = {
    "hk_fp8": {"activations": "none"},
    "hk_mxfp6": {"activations": "none", "format": "mxfp6_e3m2"},
}
"""Weight-only, so that float32 engines and the truth round the same numbers: the weights."""
FORMAT = {"hk_fp8": "fp8_e4m3fn", "hk_mxfp6": "mxfp6_e3m2"}
RANK, ALPHA = 4, 8


@pytest.fixture(scope="module")
def checkpoints(folder: Path) -> dict[str, str]:
    """The model, and what each way of serving it must amount to, as plain float32 checkpoints."""
    base = folder / "linear"
    model = tiny_llama(base, 64)
    adapter = make_adapter(base / "adapter")
    made = {"model": model, "adapter": base / "adapter"}
    made["other"] = rewritten(model, base / "other", lambda name, weight: weight.flip(0) * 0.9)
    made["merged"] = rewritten(
        model, base / "merged", lambda name, weight: weight + adapter.get(name, 0)
    )
    for name, format in FORMAT.items():
        quantised = {"hk_fp8": fp8_values}.get(name, mx_values(format))
        made[name] = rewritten(model, base / name, quantised)
    return {name: str(path) for name, path in made.items()}


@pytest.fixture(scope="module")
def results(checkpoints: dict[str, str], folder: Path) -> dict[str, Any]:
    """What an engine answered with LoRA, and with other weights (linear_runner.py)."""
    return run(checkpoints, folder / "linear", {}, {"dtype": "float32"})


@pytest.fixture(scope="module")
def quantised(checkpoints: dict[str, str], folder: Path) -> dict[str, Any]:
    """What engines answered that quantise while they load, in one process."""
    more: dict[str, Any] = {"dtype": "float32", "quantization": QUANTIZATION}
    return run(checkpoints, folder / "quantised", {}, more)


def run(
    checkpoints: dict[str, str], folder: Path, environment: dict[str, str], more: dict[str, Any]
) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    case, answered, log = (folder / name for name in ("case", "answers", "log"))
    prompts = random_prompts([3, 40, 130], seed=5)
    case.write_text(json.dumps(checkpoints | {"prompts": prompts} | more))
    runner = "tests.integration.hk_vllm.e2e.linear_runner"
    FORKS.run(runner, [case, answered], log, HK | environment)
    assert answered.exists(), tail(log.read_text())
    found: dict[str, Any] = json.loads(answered.read_text())
    return found | {"folder": str(folder)}


def answers(results: dict[str, Any], name: str) -> list[Answer]:
    note_engine(results["folder"])
    return [Answer(**item) for item in results[name]]


WEIGHTS = pytest.mark.parametrize(
    ("served", "truth"),
    [("plain", "model"), ("adapted", "merged"), ("reloaded", "other")],
)
"""What an engine was asked with, and the checkpoint that it amounts to."""


@pytest.mark.held
@WEIGHTS
def test_weights(
    served: str, truth: str, results: dict[str, Any], checkpoints: dict[str, str]
) -> None:
    """A packed layer under a LoRA adapter, and with weights that were reloaded in place."""
    assert_true_answers(answers(results, served), checkpoints[truth])
    if truth != "model":  # or it had gone unnoticed
        with pytest.raises(AssertionError, match="log-probability"):
            assert_true_logprobs(answers(results, served), checkpoints["model"])


@pytest.fixture(scope="module")
def on_gfx950(checkpoints: dict[str, str], folder: Path) -> dict[str, Any]:
    """The same in bfloat16 on the emulated GPU."""
    more = {"dtype": "bfloat16"}
    return run(checkpoints, folder / "linear-gfx950", {"HK_DEVICE": GFX950}, more)


@pytest.mark.slow
@WEIGHTS
def test_weights_on_gfx950(
    served: str, truth: str, on_gfx950: dict[str, Any], checkpoints: dict[str, str]
) -> None:
    """As exact as transformers in bfloat16 of the weights that count, and not of others."""
    result = ScenarioResult(served, [], [RoundResult(answers(on_gfx950, served), 0, [], None)])
    assert on_gfx950["routes"]["linear"]["layers_left"] == {}
    for name, path in checkpoints.items():
        if name in ("model", "merged", "other"):
            errors = error_of(result.rounds, path), error_in("bfloat16", result, Path(path))
            if name == truth:
                assert_as_exact(*errors)
            else:
                with pytest.raises(AssertionError, match="error"):
                    assert_as_exact(*errors)


def test_every_layer_was_packed(results: dict[str, Any]) -> None:
    linear = results["routes"]["linear"]
    assert linear["layers"] == 4 * TINY_LAYERS + 1
    assert linear["layers_left"] == {}
    assert linear["calls"] > 0


@pytest.mark.engine_proof
@pytest.mark.parametrize("name", QUANTIZATION)
def test_quantised_while_loading(
    name: str, quantised: dict[str, Any], checkpoints: dict[str, str]
) -> None:
    """The weights that the format has for the checkpoint's, and not the checkpoint's own."""
    assert_true_answers(answers(quantised, name), checkpoints[name])
    with pytest.raises(AssertionError, match="log-probability"):
        assert_true_logprobs(answers(quantised, name), checkpoints["model"])


# -- checkpoints


def make_adapter(path: Path) -> dict[str, torch.Tensor]:
    """A LoRA adapter for two projections of every block; what it adds to their weights."""
    path.mkdir(parents=True)
    generator = torch.Generator().manual_seed(3)
    tensors, added = {}, {}
    for block in range(TINY_LAYERS):
        for module, width, inner in (("self_attn.q_proj", 512, 256), ("mlp.down_proj", 256, 512)):
            name = f"model.layers.{block}.{module}"
            a = torch.randn(RANK, inner, generator=generator) * 0.05
            b = torch.randn(width, RANK, generator=generator) * 0.05
            tensors[f"base_model.model.{name}.lora_A.weight"] = a
            tensors[f"base_model.model.{name}.lora_B.weight"] = b
            added[f"{name}.weight"] = b @ a * (ALPHA / RANK)
    save_file(tensors, path / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none"}
    config |= {"target_modules": ["q_proj", "down_proj"], "task_type": "CAUSAL_LM"}
    (path / "adapter_config.json").write_text(json.dumps(config))
    return added
