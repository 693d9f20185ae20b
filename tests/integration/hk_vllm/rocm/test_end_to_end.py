"""vLLM engines over every ROCm cache layout: chunked prefill and prefix caching, through HK.

The platform is this machine's CPU; the attention backend is one of vLLM's ROCm backends, with
torch functions for kernels (torch_kernels.py). Three engines must agree: HK around that parent,
the parent alone, and stock vLLM on CPU_ATTN.
"""

from __future__ import annotations

import pytest

from tests.integration.hk_vllm.e2e.engine import serve
from tests.integration.hk_vllm.rocm.parents import PARENTS
from tests.integration.shared.e2e.compare import assert_routed, assert_same_answers, comparable
from tests.integration.shared.e2e.engine import HK, Engines
from tests.integration.shared.e2e.rounding import Errors, assert_as_exact
from tests.integration.shared.e2e.scenario import Round, Scenario, ScenarioResult
from tests.models import random_prompts, tiny_llama

HEAD_SIZE = 64
PREFIX = 96
ENGINE = {
    "max_model_len": 512,
    "max_num_batched_tokens": 64,
    "max_num_seqs": 4,
    "num_gpu_blocks_override": 96,
}
"""Prompts are cut into pieces of at most 64 tokens, which share their steps with decodes. Prefixes
are cached: that is vLLM's default."""


def rounds() -> list[Round]:
    """Prompts with a common beginning, every token scored; then longer ones that find it cached."""
    [prefix] = random_prompts([PREFIX], seed=1)
    first = [prefix + tail for tail in random_prompts([7, 70, 33, 150], seed=2)]
    more = random_prompts([20, 3, 40, 60], seed=3)
    second = [prompt + tail for prompt, tail in zip(first, more, strict=True)]
    return [Round(first), Round(second, teacher_forced=False)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("models"), HEAD_SIZE))


@pytest.fixture(scope="module")
def served(checkpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Engines:
    """All engines."""

    def scenario(who: str, dtype: str, block_size: int = 32) -> Scenario:
        engine = {**ENGINE, "block_size": block_size}
        return Scenario(f"{who} {dtype}", checkpoint, rounds(), dtype, engine)

    scenarios = [scenario("stock", dtype) for dtype in ("float32", "bfloat16")]
    for name, parent in PARENTS.items():
        for who, dtype in (("alone", "float32"), ("hk", "float32"), ("hk", "bfloat16")):
            scenarios.append(scenario(f"{name} {who}", dtype, parent.block_size))
    return serve(
        scenarios,
        tmp_path_factory.mktemp("rocm"),
        {**HK, "OMP_NUM_THREADS": "1"},
        runner="tests.integration.hk_vllm.rocm.runner",
    )


@pytest.mark.engine_proof
@pytest.mark.parametrize("name", PARENTS)
def test_float32(name: str, served: Engines) -> None:
    """Equal greedy tokens, log-probabilities within 1e-3, and HK computed every prefill."""
    found, alone = served[f"{name} hk float32"], served[f"{name} alone float32"]
    assert_traffic(found)
    assert_routed(found)
    assert not any("attention" in item.workers[0].routes for item in alone.rounds)
    for other in (alone, served["stock float32"]):
        for ours, theirs in zip(found.rounds, other.rounds, strict=True):
            assert_same_answers(ours.answers, theirs.answers)


@pytest.mark.engine_proof
@pytest.mark.parametrize("name", PARENTS)
def test_bfloat16(name: str, served: Engines) -> None:
    """As near to float32 as stock vLLM is in bfloat16."""
    found, truth = served[f"{name} hk bfloat16"], served["stock float32"]
    assert_traffic(found)
    assert_routed(found)
    assert_as_exact(error(found, truth), error(served["stock bfloat16"], truth))


def error(found: ScenarioResult, truth: ScenarioResult) -> Errors:
    """Over prompt tokens, and generated ones as long as they are the same."""
    return Errors.between(
        pair
        for item, expected in zip(found.rounds, truth.rounds, strict=True)
        for ours, theirs in zip(item.answers, expected.answers, strict=True)
        for pair in comparable(ours, theirs)
    )


def assert_traffic(result: ScenarioResult) -> None:
    """Prompts were chunked beside decodes, and their beginnings found in the cache."""
    first, second = result.rounds
    assert first.batches is not None
    assert any(batch.decodes and batch.extends for batch in first.batches), first.batches
    assert any(batch.fresh for batch in first.batches), first.batches
    assert all(answer.cached_tokens >= 64 for answer in second.answers)
