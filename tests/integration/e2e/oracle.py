"""The truth that engines are held to: transformers in float32, scoring what an engine answered."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from tests.integration.e2e.scenario import Answer


@dataclass(frozen=True)
class Scores:
    """For one answer: the log-probability of each of its tokens, and the greedy choice instead."""

    prompt_logprobs: list[float]
    logprobs: list[float]
    greedy: list[int]


def score(checkpoint: str, answer: Answer) -> Scores:
    """Teacher-force `answer` through transformers in one pass.

    If every generated token is the greedy choice after the ones before it, then greedy
    generation would have given these tokens.
    """
    return _score(checkpoint, tuple(answer.prompt), tuple(answer.tokens))


@cache
def _score(checkpoint: str, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> Scores:
    sequence = prompt + tokens
    with torch.inference_mode():
        logits = _model(checkpoint)(torch.tensor([list(sequence[:-1])])).logits[0]
        logprobs = torch.log_softmax(logits, dim=-1)
    chosen = logprobs.gather(1, torch.tensor(sequence[1:])[:, None])[:, 0].tolist()
    greedy = logprobs.argmax(dim=-1).tolist()
    generated = len(prompt) - 1
    return Scores(chosen[:generated], chosen[generated:], greedy[generated:])


@cache
def _model(checkpoint: str) -> Any:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()
