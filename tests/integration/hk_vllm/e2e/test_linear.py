"""Linear layers in running engines under LoRA, and with weights that are reloaded."""

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
from tests.integration.shared.e2e.rewritten import rewritten
from tests.integration.shared.e2e.scenario import Answer
from tests.models import TINY_LAYERS, random_prompts, tiny_llama

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
    return {name: str(path) for name, path in made.items()}


@pytest.fixture(scope="module")
def results(checkpoints: dict[str, str], folder: Path) -> dict[str, Any]:
    """What an engine answered with LoRA, and with other weights (linear_runner.py)."""
    case, answered, log = (folder / "linear" / name for name in ("case", "answers", "log"))
    case.write_text(json.dumps(checkpoints | {"prompts": random_prompts([3, 40, 130], seed=5)}))
    FORKS.run("tests.integration.hk_vllm.e2e.linear_runner", [case, answered], log, HK)
    assert answered.exists(), tail(log.read_text())
    found: dict[str, Any] = json.loads(answered.read_text())
    return found


@pytest.mark.held
@pytest.mark.parametrize(
    ("served", "truth"), [("plain", "model"), ("adapted", "merged"), ("reloaded", "other")]
)
def test_weights(
    served: str, truth: str, results: dict[str, Any], checkpoints: dict[str, str]
) -> None:
    """A packed layer under a LoRA adapter, and with weights that were reloaded in place."""
    answers = [Answer(**item) for item in results[served]]
    assert_true_answers(answers, checkpoints[truth])
    linear = results["routes"]["linear"]
    assert linear["layers"] == 4 * TINY_LAYERS + 1
    assert linear["layers_left"] == {}
    assert linear["calls"] > 0
    if truth != "model":  # or it had gone unnoticed
        with pytest.raises(AssertionError, match="log-probability"):
            assert_true_logprobs(answers, checkpoints["model"])


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
