"""What an engine's answers must satisfy. Every check raises AssertionError and says where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.integration.shared.e2e.oracle import score
from tests.integration.shared.e2e.scenario import Answer, RoundResult, ScenarioResult, Worker

LOGPROB_TOLERANCE = 1e-3
"""In float32: against the stock engine and against transformers."""
ROUTED_SHARE = 0.99
ENTRY_POINTS = {
    *("hk_vllm", "hk_vllm.plugin"),
    *(
        "hk_sglang",
        "hk_sglang.plugin",
        "hk_sglang.flags",
        "hk_sglang.resolution",
    ),  # offers `--attention-backend hk`
}
"""All that an engine may import of HK if nobody asked for it."""


def assert_same_answers(answers: list[Answer], expected: list[Answer]) -> None:
    """Equal tokens, and every log-probability within `LOGPROB_TOLERANCE`."""
    for index, (answer, other) in enumerate(zip(answers, expected, strict=True)):
        where = f"prompt {index} of {len(answer.prompt)} tokens"
        assert answer.tokens == other.tokens, f"{where}: other tokens"
        _assert_close(answer.prompt_logprobs, other.prompt_logprobs, f"{where}, prompt")
        _assert_close(answer.logprobs, other.logprobs, f"{where}, generated")


def assert_true_answers(answers: list[Answer], checkpoint: str) -> None:
    """Greedy tokens and log-probabilities as transformers has them in float32."""
    assert_true_logprobs(answers, checkpoint)
    assert_true_tokens(answers, checkpoint)


def assert_true_tokens(answers: list[Answer], checkpoint: str) -> None:
    """Greedy tokens as transformers has them in float32."""
    for index, answer in enumerate(answers):
        greedy = score(checkpoint, answer).greedy
        assert answer.tokens == greedy, f"prompt {index}: not the greedy tokens of transformers"


def assert_true_logprobs(answers: list[Answer], checkpoint: str) -> None:
    """Every token's log-probability within `LOGPROB_TOLERANCE` of transformers in float32.

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


@dataclass(frozen=True)
class Error:
    """How far answers in half precision are from the truth, over `count` log-probabilities."""

    rms: float
    largest: float
    count: int


def error_of(rounds: list[RoundResult], checkpoint: str) -> Error:
    """Distance to transformers in float32, which scores the engine's own tokens.

    Of rounds that asked for tokens only nothing is known.
    """
    errors: list[float] = []
    for answer in (answer for item in rounds for answer in item.answers if answer.logprobs):
        truth = score(checkpoint, answer)
        pairs = list(zip(answer.logprobs, truth.logprobs, strict=True))
        pairs += zip(answer.prompt_logprobs, truth.prompt_logprobs, strict=True)
        errors += [abs(found - expected) for found, expected in pairs]
    rms = (sum(error**2 for error in errors) / len(errors)) ** 0.5
    return Error(rms, max(errors), len(errors))


def assert_as_exact(found: Error, stock: Error) -> None:
    """Rounding no worse than the stock engine's own in the same precision.

    Both round at random, so a root mean square over n scores varies by some 1/sqrt(2n) of
    itself: 3/sqrt(n) is four such deviations. The largest of two samples differs more.
    """
    allowed = stock.rms * (1 + 3 / found.count**0.5)
    assert found.rms <= allowed, f"rms error {found.rms:.5f}, stock has {stock.rms:.5f}"
    assert found.largest <= 2 * stock.largest, (
        f"largest error {found.largest:.5f}, stock has {stock.largest:.5f}"
    )


def assert_agree(found: list[RoundResult], other: list[RoundResult], checkpoint: str) -> None:
    """Two devices in half precision agree on every token of the same prompts, within rounding.

    The rounding is that of `other`, measured against transformers in float32: `found` has no
    part in its own bound.
    """
    assert_within(found, other, error_of(other, checkpoint))


def assert_within(found: list[RoundResult], other: list[RoundResult], noise: Error) -> None:
    """Two answers agree on every token of the same prompts, if each is off by like noise.

    Each differs from the truth by its own rounding, so they differ from each other by what those
    leave: with noises e and c of like size, at most sqrt(2) of one, where they are independent.
    The largest of a sample is less certain: three times that of `noise`.
    """
    differences = [
        abs(a - b)
        for ours, theirs in zip(found, other, strict=True)
        for answer, expected in zip(ours.answers, theirs.answers, strict=True)
        for a, b in comparable(answer, expected)
    ]
    count = len(differences)
    rms = (sum(value**2 for value in differences) / count) ** 0.5
    allowed = (2**0.5) * noise.rms * (1 + 3 / count**0.5)
    assert rms <= allowed, f"rms error {rms:.5f} between the two, rounding gives {allowed:.5f}"
    largest = max(differences)
    assert largest <= 3 * noise.largest, (
        f"largest error {largest:.5f} between the two, rounding has {noise.largest:.5f}"
    )


def assert_same_numbers(found: ScenarioResult, other: ScenarioResult, checkpoint: str) -> None:
    """As near to the truth as another device is, and as near to that device as rounding allows."""
    assert_as_exact(error_of(found.rounds, checkpoint), error_of(other.rounds, checkpoint))
    assert_agree(found.rounds, other.rounds, checkpoint)


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


def assert_routed(result: ScenarioResult) -> None:
    """HK computed the prefill: at least 99 %, and its count is the scheduler's own."""
    for rank, worker in enumerate(result.rounds[-1].workers):
        attention = worker.routes.get("attention")
        assert attention, f"worker {rank}: HK counted nothing"
        served = attention["tokens"] - _tokens(result.start[rank])
        missed = sum(tally["tokens"] for tally in attention["fallbacks"].values())
        assert served >= ROUTED_SHARE * (served + missed) > 0, f"worker {rank}: {attention}"
        if result.rounds[-1].batches is not None:
            scheduled = worker.layers * sum(
                batch.prefill_tokens for item in result.rounds for batch in item.batches or []
            )
            assert served + missed == scheduled, f"scheduled {scheduled}, counted {attention}"
        assert attention["on"], attention["why"]


def assert_not_loaded(result: ScenarioResult) -> None:
    """Stock: nothing of HK in any worker beyond the plugin's entry point."""
    for worker in result.rounds[-1].workers:
        assert set(worker.modules) <= ENTRY_POINTS, worker.modules


def _tokens(worker: Worker) -> int:
    attention = worker.routes.get("attention")
    return attention["tokens"] if attention else 0
