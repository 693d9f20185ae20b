"""Whole engines with a drafter, their prompts' attention computed by MI355X machine code.

As test_engines.py. Drafts come from a draft model, which is the target itself, or from a class
whose drafts are hardly ever right. (vLLM's `ngram` needs numba, which is not installed here.)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hk_backend.engine.rows import SPECULATIVE
from tests.integration.hk_vllm.rocm.parents import PARENTS
from tests.integration.hk_vllm.rocm.runner import DRAFTS, FromThePrompt
from tests.integration.hk_vllm.rocm.test_engines import DEVICES, ENGINE, serve_on
from tests.integration.shared.e2e.compare import ROUTED_SHARE
from tests.integration.shared.e2e.engine import Engines
from tests.integration.shared.e2e.oracle import score
from tests.integration.shared.e2e.rounding import assert_same_numbers, error_of
from tests.integration.shared.e2e.scenario import (
    Round,
    RoundResult,
    Scenario,
    ScenarioResult,
    Worker,
)
from tests.models import TINY_LAYERS, random_prompts, tiny_llama

PARENT = "rocm-attn"
HK = "HK"
DRAFTING = "drafting"
REASONS = {"draft_model": {SPECULATIVE, DRAFTING}, "custom_class": {SPECULATIVE}}
"""By the method of a drafter: why rows are the parent's. A draft model's first pass is, too."""
HEALTHY, FAULT = "without drafts", "take_speculative_rows"
FIRST = random_prompts([40, 100, 161, 70], seed=9)
SECOND = [prompt + tail for prompt, tail in zip(FIRST, random_prompts([20] * 4, 10), strict=True)]
ROUNDS = [Round(prompts, max_tokens=12, teacher_forced=False) for prompts in (FIRST, SECOND)]
"""Chunked prompts, then longer ones that find them cached."""
FAULTY = Round(random_prompts([40, 70], seed=11), teacher_forced=False, mutation=FAULT)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("models"), 64))


@pytest.fixture(scope="module")
def served(checkpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Engines:
    """Every drafter's engine, by its method, and one without."""
    class_name = f"{FromThePrompt.__module__}.{FromThePrompt.__name__}"
    drafters = {"draft_model": checkpoint, "custom_class": class_name}

    def scenario(method: str, asked: list[Round], **more: Any) -> Scenario:
        engine = {**ENGINE, "block_size": PARENTS[PARENT].block_size, **more}
        return Scenario(f"{PARENT} {method}", checkpoint, asked, "bfloat16", engine)

    def speculating(method: str, model: str) -> Scenario:
        drafts = {"method": method, "model": model, "num_speculative_tokens": DRAFTS}
        return scenario(method, [*ROUNDS, FAULTY], speculative_config=drafts)

    scenarios = [scenario(HEALTHY, ROUNDS), *(speculating(*each) for each in drafters.items())]
    return serve_on(DEVICES[0], scenarios, tmp_path_factory.mktemp("drafts"))


@pytest.mark.engine_proof
@pytest.mark.parametrize("method", REASONS)
def test_rows(method: str, served: Engines) -> None:
    """The prompts' are HK's, those that verify drafts the parent's, in the same steps too; and a
    fault that takes them is seen."""
    found = served[f"{PARENT} {method}"]
    before = found.start[0]
    *healthy, faulty = found.rounds
    for item in healthy:
        assert_split(item, before, REASONS[method])
        [before] = item.workers
    # of the prompts in a step at most one has been begun before: the others verify
    assert any(step.fresh and step.extends > 1 for step in healthy[0].batches or [])
    assert all(answer.cached_tokens for answer in healthy[-1].answers)
    assert faulty.workers[0].mutated_calls > before.mutated_calls
    with pytest.raises(AssertionError, match="tokens by HK"):
        assert_split(faulty, before, REASONS[method])


@pytest.mark.engine_proof
@pytest.mark.parametrize("method", REASONS)
def test_tokens(method: str, served: Engines, checkpoint: str) -> None:
    """Those of the engine without drafts, and greedy, but for rounding: where the engine takes
    another token than the truth, its own is less likely by at most the errors of these two."""
    found, alone = (served[f"{PARENT} {name}"] for name in (method, HEALTHY))
    healthy = replace(found, rounds=found.rounds[: len(ROUNDS)])
    assert_same_numbers(healthy, alone, checkpoint)
    regrets = [
        regret
        for item in healthy.rounds
        for answer in item.answers
        for regret in score(checkpoint, answer).regrets
    ]
    assert np.mean(regrets) <= 2 * error_of(alone.rounds, checkpoint).mean
    if method == "draft_model":  # whose drafts are accepted
        assert steps(healthy) < steps(alone)


def steps(result: ScenarioResult) -> int:
    return sum(len(item.batches or []) for item in result.rounds)


def assert_split(item: RoundResult, before: Worker, reasons: set[str]) -> None:
    """What HK counted of the round is what the scheduler made of it."""
    [after] = item.workers
    counted = tokens_of(after) - tokens_of(before)
    prompts = TINY_LAYERS * sum(len(of.prompt) - of.cached_tokens for of in item.answers)
    scheduled = TINY_LAYERS * sum(step.prefill_tokens for step in item.batches or [])
    by_hk = counted.pop(HK)
    assert ROUTED_SHARE * prompts <= by_hk <= prompts, f"{by_hk} of {prompts} tokens by HK"
    assert by_hk + counted[SPECULATIVE] == scheduled, f"{by_hk} tokens by HK, and {counted}"
    assert set(counted) == reasons


def tokens_of(worker: Worker) -> Counter[str]:
    """By HK, and by the parent for each reason."""
    attention = worker.routes.get("attention", {"tokens": 0, "fallbacks": {}})
    left = {why: tally["tokens"] for why, tally in attention["fallbacks"].items()}
    return Counter({HK: attention["tokens"], **left})
