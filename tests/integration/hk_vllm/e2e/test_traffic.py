"""One engine with HK under all traffic, and one whose weights change.

Traffic has chunked prompts, a cached prefix, preemption, and faults that must all show. The engine
computes in float32, so that an answer differs from the truth by what is wrong.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.integration.hk_vllm.e2e.engine import FORKS, serve
from tests.integration.shared.e2e.compare import (
    assert_routed,
    assert_true_answers,
    assert_true_logprobs,
)
from tests.integration.shared.e2e.engine import HK, Checkpoint, tail
from tests.integration.shared.e2e.prompts import MUTATIONS, Prompts, prefix_rounds
from tests.integration.shared.e2e.quantized import assert_all_by_hk
from tests.integration.shared.e2e.rewritten import rewritten
from tests.integration.shared.e2e.scenario import (
    Answer,
    Round,
    RoundResult,
    Scenario,
    ScenarioResult,
)
from tests.models import TINY_LAYERS, random_prompts, tiny_llama

MODEL = "tiny-64"
ENGINE = {
    "max_num_batched_tokens": 80,
    "max_num_seqs": 4,
    "max_model_len": 512,
    "num_gpu_blocks_override": 26,
    "enable_prefix_caching": True,
}
"""Prompts are cut into pieces of at most 80 tokens that share steps with decodes. The cache is too
small for four long requests. A scored prompt reads no cached prefix, so that no round finds what a
fault has left behind."""
FAULTY_LENGTHS = [31, 128, 200, 333]


def asked(prompts: Prompts) -> dict[str, list[Round]]:
    """The engine's rounds, in their order, by their purpose."""
    chunks, faulty = prompts.of(prompts.lengths()), prompts.of(FAULTY_LENGTHS)
    long = prompts.of([150, 140, 160, 145])
    return {
        "chunked": [Round(chunks)],
        "prefix": prefix_rounds(prompts),
        "preempted": [Round(long, max_tokens=100, teacher_forced=False)],
        **{fault: [Round(faulty, mutation=fault)] for fault in MUTATIONS},
        "ignored_prefix in the cache": prefix_rounds(prompts, "ignored_prefix"),
        "healed": [Round(chunks)],
    }


FAULTS = (*MUTATIONS, "ignored_prefix in the cache")


@pytest.fixture(scope="module")
def result(checkpoint: Checkpoint, folder: Path) -> ScenarioResult:
    model = checkpoint(MODEL)
    rounds = [each for part in asked(Prompts(MODEL, model)).values() for each in part]
    scenario = Scenario("traffic", model, rounds, "float32", ENGINE)
    return serve([scenario], folder / "traffic", HK)["traffic"]


@pytest.fixture(scope="module")
def parts(result: ScenarioResult, checkpoint: Checkpoint) -> dict[str, list[RoundResult]]:
    """The results, under the names of `asked`."""
    left = iter(result.rounds)
    counts = {name: len(part) for name, part in asked(Prompts(MODEL, checkpoint(MODEL))).items()}
    return {name: [next(left) for _ in range(count)] for name, count in counts.items()}


@pytest.mark.parametrize("name", ["chunked", "prefix", "preempted", "healed"])
def test_answers(name: str, parts: dict[str, list[RoundResult]], checkpoint: Checkpoint) -> None:
    """Greedy tokens and log-probabilities are those of transformers, even after all faults."""
    for item in parts[name]:
        assert_true_answers(item.answers, checkpoint(MODEL))


def test_the_engine_met_all_traffic(parts: dict[str, list[RoundResult]]) -> None:
    [chunked], [_, prefix], [preempted] = (
        parts[name] for name in ("chunked", "prefix", "preempted")
    )
    assert any(b.decodes and b.extends and b.fresh for b in chunked.batches or [])
    assert any(batch.extends > 1 for batch in prefix.batches or [])
    assert all(answer.cached_tokens >= 256 for answer in prefix.answers)
    assert preempted.preemptions > 0


def test_hk_computed_it(result: ScenarioResult) -> None:
    """HK computes every token that the scheduler counts, and every linear layer."""
    assert_routed(result)
    assert_all_by_hk(result)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_shows(
    fault: str,
    result: ScenarioResult,
    parts: dict[str, list[RoundResult]],
    checkpoint: Checkpoint,
) -> None:
    """HK counts the tokens as its own, and they are not the truth."""
    item = parts[fault][-1]
    before = result.rounds[result.rounds.index(item) - 1].workers[0]
    assert item.workers[0].mutated_calls > before.mutated_calls
    with pytest.raises(AssertionError, match="log-probability"):
        assert_true_logprobs(item.answers, checkpoint(MODEL))


# -- one engine under LoRA, and with weights that are reloaded


RANK, ALPHA = 4, 8


@pytest.fixture(scope="module")
def checkpoints(folder: Path) -> dict[str, str]:
    """Plain float32 checkpoints of the model, and of the weights that each way must amount to."""
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
    """The answers of one engine with LoRA, and with other weights (linear_runner.py)."""
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
    """A packed layer works under a LoRA adapter, and with weights that were reloaded in place."""
    answers = [Answer(**item) for item in results[served]]
    assert_true_answers(answers, checkpoints[truth])
    linear = results["routes"]["linear"]
    assert linear["layers"] == 4 * TINY_LAYERS + 1
    assert linear["layers_left"] == {}
    assert linear["calls"] > 0
    if truth != "model":  # the change of weights must show
        with pytest.raises(AssertionError, match="log-probability"):
            assert_true_logprobs(answers, checkpoints["model"])


def make_adapter(path: Path) -> dict[str, torch.Tensor]:
    """Make a LoRA adapter for two projections of each block; return what it adds to weights."""
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
