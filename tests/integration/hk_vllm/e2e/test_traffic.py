"""One engine with HK under all traffic: chunked prompts, a cached prefix, preemption, and faults,
each of which must show. In float32, so that an answer differs from the truth by what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.hk_vllm.e2e.engine import serve
from tests.integration.shared.e2e.compare import (
    assert_routed,
    assert_true_answers,
    assert_true_logprobs,
)
from tests.integration.shared.e2e.engine import HK, Checkpoint
from tests.integration.shared.e2e.prompts import MUTATIONS, Prompts, prefix_rounds
from tests.integration.shared.e2e.quantized import assert_all_by_hk
from tests.integration.shared.e2e.scenario import Round, RoundResult, Scenario, ScenarioResult

MODEL = "tiny-64"
ENGINE = {
    "max_num_batched_tokens": 80,
    "max_num_seqs": 4,
    "max_model_len": 512,
    "num_gpu_blocks_override": 26,
    "enable_prefix_caching": True,
}
"""Prompts are cut into pieces of at most 80 tokens that share steps with decodes; the cache is too
small for four long requests. A prompt that is scored reads no cached prefix: no round finds what a
fault has left behind."""
FAULTY_LENGTHS = [31, 128, 200, 333]


def asked(prompts: Prompts) -> dict[str, list[Round]]:
    """The engine's rounds by what they are there for, in their order."""
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
    """The results as `asked` names them."""
    left = iter(result.rounds)
    counts = {name: len(part) for name, part in asked(Prompts(MODEL, checkpoint(MODEL))).items()}
    return {name: [next(left) for _ in range(count)] for name, count in counts.items()}


@pytest.mark.parametrize("name", ["chunked", "prefix", "preempted", "healed"])
def test_answers(name: str, parts: dict[str, list[RoundResult]], checkpoint: Checkpoint) -> None:
    """Greedy tokens and log-probabilities of transformers; also after all faults."""
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
    """Every token that the scheduler counts, and every linear layer."""
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
