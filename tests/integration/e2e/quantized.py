"""Scenarios over quantised checkpoints, and what their answers must satisfy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.checkpoints import Made, Scheme
from tests.integration.checkpoints.damage import Damage
from tests.integration.e2e.compare import Error, assert_as_exact, assert_true_logprobs, error_of
from tests.integration.e2e.oracle import answered
from tests.integration.e2e.scenario import Round, RoundResult, Scenario, ScenarioResult
from tests.models import TINY_LAYERS, random_prompts

LENGTHS = [7, 64, 150]
LAYERS = 4 * TINY_LAYERS + 1
"""QKV, output, gate-up and down of each decoder layer, and the head."""
ENGINE: dict[str, Any] = {"max_model_len": 256, "max_num_batched_tokens": 256}


def scenario(scheme: Scheme, made: Made, dtype: str, lengths: list[int] = LENGTHS) -> Scenario:
    """One engine; alone in its batch where activation scales span the batch, and then no decode."""
    engine, max_tokens = ENGINE, 3
    if scheme.per_batch:
        engine, max_tokens = {**ENGINE, "max_num_seqs": 1}, 1
    rounds = [Round(random_prompts(lengths, seed=11), max_tokens=max_tokens)]
    sabotage = "float32_everywhere" if dtype == "float32" else ""
    return Scenario(name_of(scheme, dtype), str(made.checkpoint), rounds, dtype, engine, sabotage)


def damaged(damage: Damage, checkpoint: Path) -> Scenario:
    """One engine that must not start."""
    rounds = [Round(random_prompts([5], seed=1), max_tokens=1)]
    return Scenario(str(damage), str(checkpoint), rounds, "float32", ENGINE, "float32_everywhere")


def name_of(scheme: Scheme, dtype: str) -> str:
    return f"{scheme.name}-{dtype}"


def error_in(arithmetic: str, result: ScenarioResult, truth: Path) -> Error:
    """How far another arithmetic takes transformers from the truth, on the same tokens."""
    rounds = [
        RoundResult(
            [answered(str(truth), answer, arithmetic) for answer in item.answers], 0, [], None
        )
        for item in result.rounds
    ]
    return error_of(rounds, str(truth))


def assert_true(scheme: Scheme, result: ScenarioResult, truth: Path, dtype: str) -> None:
    """What the checkpoint means: within `LOGPROB_TOLERANCE` in float32; as near as the dtype's own
    rounding allows where inputs are rounded to codes, or the dtype is not float32.

    What passes is not what forgetting to round the inputs would give.
    """
    if scheme.activations == "none" and dtype == "float32":
        for item in result.rounds:
            assert_true_logprobs(item.answers, str(truth))
        return
    allowed = error_in(dtype, result, truth)
    assert_as_exact(error_of(result.rounds, str(truth)), allowed)
    if scheme.activations != "none" and dtype == "float32":
        with pytest.raises(AssertionError, match="error"):
            assert_as_exact(error_in("unrounded", result, truth), allowed)


def assert_all_by_hk(result: ScenarioResult) -> None:
    """Every linear layer of the model, and every token of every call."""
    worker = result.rounds[-1].workers[0]
    linear = worker.routes["linear"]
    assert linear["on"], linear["why"]
    assert linear["layers"] == LAYERS
    assert not linear["layers_left"], linear["layers_left"]
    assert not linear["fallbacks"], linear["fallbacks"]
    assert linear["tokens"] > 0
