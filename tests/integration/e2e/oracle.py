"""The truth that engines are held to: transformers in float32, scoring what an engine answered."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from tests.integration.e2e.scenario import Answer


@dataclass(frozen=True)
class Scores:
    """For one answer: its tokens' log-probabilities, and the greedy choices in their place."""

    prompt_logprobs: list[float]
    logprobs: list[float]
    greedy: list[int]


def score(checkpoint: str, answer: Answer) -> Scores:
    """Teacher-force `answer` through transformers in one pass; its prompt too, if it was scored.

    If every generated token is the greedy choice after the ones before it, then greedy
    generation would have given these tokens.
    """
    scored_prompt = len(answer.prompt_logprobs)
    return _score(checkpoint, tuple(answer.prompt), tuple(answer.tokens), scored_prompt)


@cache
def _score(
    checkpoint: str, prompt: tuple[int, ...], tokens: tuple[int, ...], scored_prompt: int
) -> Scores:
    sequence = [*prompt, *tokens]
    scored = scored_prompt + len(tokens)
    with torch.inference_mode():
        inputs = torch.tensor([sequence[:-1]])
        logits = _model(checkpoint)(inputs, logits_to_keep=scored, use_cache=False).logits[0]
        logprobs = torch.log_softmax(logits, dim=-1)
    chosen = logprobs.gather(1, torch.tensor(sequence[-scored:])[:, None])[:, 0].tolist()
    greedy = logprobs[scored_prompt:].argmax(dim=-1).tolist()
    return Scores(chosen[:scored_prompt], chosen[scored_prompt:], greedy)


@cache
def _model(checkpoint: str) -> Any:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()
