"""Engines that serve one kind of traffic, and the checks of their answers.

HK must answer as transformers and a stock engine do, and must have computed the answers itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.integration.shared.e2e.compare import (
    assert_not_loaded,
    assert_routed,
    assert_true_answers,
    assert_true_tokens,
)
from tests.integration.shared.e2e.rounding import assert_as_exact, error_of
from tests.integration.shared.e2e.scenario import ScenarioResult

MODELS = ("tiny-64", "tiny-128", "smollm2")


@dataclass(frozen=True)
class Case:
    """One engine; `kind` names its traffic, and `block_size` is the KV cache's.

    Prompts are made once the checkpoint is there.
    """

    model: str
    dtype: str
    kind: str
    block_size: int

    def __str__(self) -> str:
        return f"{self.model}-{self.dtype}-{self.kind}-{self.block_size}"


def assert_equal(found: ScenarioResult, truth: str, tokens_only: int = 0) -> None:
    """Hold that float32 answers equal the truth: greedy tokens, and log-probabilities within 1e-3.

    The last `tokens_only` rounds asked for tokens only.
    """
    assert_routed(found)
    scored = len(found.rounds) - tokens_only
    for index, item in enumerate(found.rounds):
        (assert_true_answers if index < scored else assert_true_tokens)(item.answers, truth)


def assert_as_near(found: ScenarioResult, stock: ScenarioResult, truth: str) -> None:
    """Hold that HK in half precision is as near to float32 as stock is, on the same traffic."""
    assert_not_loaded(stock)
    assert_routed(found)
    assert_as_exact(error_of(found.rounds, truth), error_of(stock.rounds, truth))


def assert_met(kind: str, result: ScenarioResult) -> None:
    """Hold that the engine met the steps or caches that this kind of traffic exists for."""
    last, first = result.rounds[-1], result.rounds[0].batches or []
    steps = [step for item in result.rounds for step in item.batches or []]
    met = {
        "whole": any(step.fresh > 1 for step in first) and not any(step.extends for step in first),
        "chunked": any(step.decodes and step.extends and step.fresh for step in steps),
        "prefix": all(answer.cached_tokens >= 256 for answer in last.answers)
        and any(step.extends > 1 for step in last.batches or []),
        "preempted": last.preemptions > 0,
    }
    assert met[kind], steps
