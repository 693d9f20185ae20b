"""A whole engine with a draft model, whose prompts' attention MI355X machine code computes.

The draft model is the target itself. The engines are those of test_engines.py, but vLLM is imported
without Triton, so its runner's part for drafts is torch. The kernel that inserts resampled tokens
(vLLM 0.32, `_insert_resampled_kernel`) counts them up in memory from which its other waves still
read: a result in the emulator depends on their order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.integration.hk_vllm.e2e.engine import FORKS
from tests.integration.hk_vllm.rocm.parents import PARENTS
from tests.integration.hk_vllm.rocm.test_engines import DEVICES, ENGINE, serve_on
from tests.integration.shared.attention.rows import DRAFTS
from tests.integration.shared.e2e.compare import ROUTED_SHARE
from tests.integration.shared.e2e.engine import Engines
from tests.integration.shared.e2e.oracle import score
from tests.integration.shared.e2e.rounding import assert_same_numbers, error_of
from tests.integration.shared.e2e.scenario import Round, RoundResult, Scenario, Worker
from tests.models import TINY_LAYERS, random_prompts, tiny_llama

pytestmark = pytest.mark.triton
PARENT, HK, DECODE = "rocm-attn", "HK", "HK's decode"
DRAFTED, ALONE = (f"{PARENT} {how}" for how in ("drafted", "alone"))
FIRST = random_prompts([40, 100, 161, 70], seed=9)
SECOND = [prompt + tail for prompt, tail in zip(FIRST, random_prompts([20] * 4, 10), strict=True)]
ROUNDS = [Round(prompts, max_tokens=12, teacher_forced=False) for prompts in (FIRST, SECOND)]
"""Chunked prompts, then longer ones that find them cached."""
FAULTY = Round(
    random_prompts([40, 70], seed=11), teacher_forced=False, mutation="take_speculative_rows"
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("models"), 64))


@pytest.fixture(scope="module")
def served(checkpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Engines:
    """The engine, and one without drafts."""

    def scenario(name: str, asked: list[Round], **more: Any) -> Scenario:
        engine = {**ENGINE, "block_size": PARENTS[PARENT].block_size, **more}
        return Scenario(name, checkpoint, asked, "bfloat16", engine)

    drafts = {"method": "draft_model", "model": checkpoint, "num_speculative_tokens": DRAFTS}
    scenarios = [
        scenario(ALONE, ROUNDS),
        scenario(DRAFTED, [*ROUNDS, FAULTY], speculative_config=drafts),
    ]
    return serve_on(DEVICES[0], scenarios, tmp_path_factory.mktemp("drafts"), FORKS)


@pytest.mark.engine_proof
def test_rows(served: Engines) -> None:
    """HK's prefill computes the prompts' rows, and its decode those that verify drafts.

    The parent computes the drafter's first pass. A fault that gives all rows to prefill is seen.
    """
    found = served[DRAFTED]
    before = found.start[0]
    *healthy, faulty = found.rounds
    for item in healthy:
        assert_split(item, before)
        [before] = item.workers
    # one prompt of a step at most was begun before: the other rows verify
    assert any(step.fresh and step.extends > 1 for step in healthy[0].batches or [])
    assert all(answer.cached_tokens for answer in healthy[-1].answers)
    assert faulty.workers[0].mutated_calls > before.mutated_calls
    with pytest.raises(AssertionError, match="tokens by HK"):
        assert_split(faulty, before)


@pytest.mark.engine_proof
def test_tokens(served: Engines, checkpoint: str) -> None:
    """The engine gives the tokens of the engine without drafts: greedy ones, but for rounding.

    It may take another token than the truth's. That one is less likely by at most the errors of the
    two engines.
    """
    found, alone = served[DRAFTED], served[ALONE]
    healthy = replace(found, rounds=found.rounds[: len(ROUNDS)])
    assert_same_numbers(healthy, alone, checkpoint)
    answers = [answer for item in healthy.rounds for answer in item.answers]
    regrets = [regret for answer in answers for regret in score(checkpoint, answer).regrets]
    assert np.mean(regrets) <= 2 * error_of(alone.rounds, checkpoint).mean
    drafted, every = (sum(len(item.batches or []) for item in of.rounds) for of in (healthy, alone))
    assert drafted < every, "no draft was accepted"


def assert_split(item: RoundResult, before: Worker) -> None:
    """Hold that HK counted what the scheduler made of the round."""
    [after] = item.workers
    counted = tokens_of(after) - tokens_of(before)
    prompts = TINY_LAYERS * sum(len(of.prompt) - of.cached_tokens for of in item.answers)
    scheduled = TINY_LAYERS * sum(step.prefill_tokens for step in item.batches or [])
    singles = TINY_LAYERS * sum(step.decodes for step in item.batches or [])
    by_hk, verified = counted.pop(HK), counted.pop(DECODE, 0) - singles
    assert ROUTED_SHARE * prompts <= by_hk <= prompts, f"{by_hk} of {prompts} tokens by HK"
    assert by_hk + verified == scheduled, f"{by_hk} tokens by HK, {verified} verified"
    assert set(counted) == {"drafting"}


def tokens_of(worker: Worker) -> Counter[str]:
    """Number of tokens that HK's routes computed, and of the parent's for each reason."""
    nothing = {"tokens": 0, "fallbacks": {}}
    attention, decode = (worker.routes.get(name, nothing) for name in ("attention", "decode"))
    left = {
        why: tally["tokens"]
        for route in (attention, decode)
        for why, tally in route["fallbacks"].items()
    }
    return Counter({HK: attention["tokens"], DECODE: decode["tokens"], **left})
