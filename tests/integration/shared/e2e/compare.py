"""Checks of an engine's answers. Each raises AssertionError and says where."""

from __future__ import annotations

from collections.abc import Iterator

from tests.integration.shared.e2e.oracle import score
from tests.integration.shared.e2e.scenario import Answer, ScenarioResult, Worker

LOGPROB_TOLERANCE = 1e-3
"""Tolerance in float32, against the stock engine and against transformers."""
ROUTED_SHARE = 0.99
ENTRY_POINTS = {
    *("hk_vllm", "hk_vllm.plugin"),
    *(
        "hk_sglang",
        "hk_sglang.plugin",
        "hk_sglang.resolution",
    ),  # offers `--attention-backend hk`
}
"""All modules of HK that an engine may import if nobody asked for HK."""


def assert_true_answers(answers: list[Answer], checkpoint: str) -> None:
    """Hold that greedy tokens and log-probabilities are those of transformers in float32."""
    assert_true_logprobs(answers, checkpoint)
    assert_true_tokens(answers, checkpoint)


def assert_true_tokens(answers: list[Answer], checkpoint: str) -> None:
    """Hold that greedy tokens are those of transformers in float32."""
    for index, answer in enumerate(answers):
        greedy = score(checkpoint, answer).greedy
        assert answer.tokens == greedy, f"prompt {index}: not the greedy tokens of transformers"


def assert_true_logprobs(answers: list[Answer], checkpoint: str) -> None:
    """Hold that every log-probability is within `LOGPROB_TOLERANCE` of transformers in float32.

    Transformers scores the tokens that the engine gave: it does not matter which they are.
    """
    for index, answer in enumerate(answers):
        truth = score(checkpoint, answer)
        where = f"prompt {index} of {len(answer.prompt)} tokens"
        _assert_close(answer.prompt_logprobs, truth.prompt_logprobs, f"{where}, prompt")
        _assert_close(answer.logprobs, truth.logprobs, f"{where}, generated")


def _assert_close(found: list[float], expected: list[float], where: str) -> None:
    assert len(found) == len(expected), f"{where}: {len(found)} scores, expected {len(expected)}"
    for index, (value, other) in enumerate(zip(found, expected, strict=True)):
        assert abs(value - other) <= LOGPROB_TOLERANCE, (  # a NaN fails, too
            f"{where}: log-probability {index} is {value:.5f}, expected {other:.5f}"
        )


def comparable(answer: Answer, other: Answer) -> Iterator[tuple[float, float]]:
    """Log-probabilities of the same tokens: the prompt's, and generated ones while they agree."""
    assert answer.prompt == other.prompt
    yield from zip(answer.prompt_logprobs, other.prompt_logprobs, strict=True)
    for token, expected, *pair in zip(
        answer.tokens, other.tokens, answer.logprobs, other.logprobs, strict=True
    ):
        if token != expected:
            return
        yield pair[0], pair[1]


def assert_routed(result: ScenarioResult, models: int = 1) -> None:
    """Hold that HK computed at least 99 % of the prefill; its count must be the scheduler's own.

    Args:
        models: 2, if a draft model with as many layers computes all prompts, too.
    """
    for rank, worker in enumerate(result.rounds[-1].workers):
        attention = worker.routes.get("attention")
        assert attention, f"worker {rank}: HK counted nothing"
        served = attention["tokens"] - _tokens(result.start[rank])
        missed = sum(tally["tokens"] for tally in attention["fallbacks"].values())
        assert served >= ROUTED_SHARE * (served + missed) > 0, f"worker {rank}: {attention}"
        if result.rounds[-1].batches is not None:
            scheduled = (
                models
                * worker.layers
                * sum(
                    batch.prefill_tokens for item in result.rounds for batch in item.batches or []
                )
            )
            assert served + missed == scheduled, f"scheduled {scheduled}, counted {attention}"
        assert attention["on"], attention["why"]


def assert_decoded(result: ScenarioResult, tokens: int = 1, models: int = 1) -> None:
    """Hold that HK computed every decode row; its count must be the scheduler's own.

    Args:
        tokens: query tokens for each row: one and its drafts, and those of a draft model.
        models: see `assert_routed`.
    """
    for rank, worker in enumerate(result.rounds[-1].workers):
        decode = worker.routes.get("decode")
        assert decode, f"worker {rank}: HK counted nothing"
        assert decode["on"], decode["why"]
        assert (decode["fallbacks"], decode["layers"]) == ({}, models * worker.layers), decode
        if result.rounds[-1].batches is not None:
            before = result.start[rank].routes.get("decode", {"tokens": 0})["tokens"]
            rows = sum(batch.decodes for item in result.rounds for batch in item.batches or [])
            scheduled = worker.layers * rows * tokens
            assert decode["tokens"] - before == scheduled > 0, f"{scheduled}, counted {decode}"


def assert_replayed(result: ScenarioResult) -> None:
    """Hold that HK's linear layers ran in graphs, some of them often.

    HK's counters hold only the launches that its Python made.
    """
    for worker in result.rounds[-1].workers:
        linear = worker.routes["linear"]
        assert linear["on"], linear["why"]
        runs = sum(count for name, count in worker.launches.items() if name.startswith("gemm_"))
        eager = linear["calls"] + linear["dummy_calls"]
        assert runs - eager > linear["captured_calls"] > 0, (runs, linear)


def assert_not_loaded(result: ScenarioResult) -> None:
    """Hold that an engine is stock: no worker has more of HK than the plugin's entry point."""
    for worker in result.rounds[-1].workers:
        assert set(worker.modules) <= ENTRY_POINTS, worker.modules


def _tokens(worker: Worker) -> int:
    attention = worker.routes.get("attention")
    return attention["tokens"] if attention else 0
