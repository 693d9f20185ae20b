"""The truth that engines are held to: transformers in float32, scoring what an engine answered.

In a folder with `activations.json` (shared/checkpoints) the layers named there round their inputs
as it says, and multiply in float64.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import load_file

from hk_backend.reference.linear import round_activations
from tests.integration.shared.e2e.scenario import Answer


@dataclass(frozen=True)
class Scores:
    """Scores of one answer: its tokens' log-probabilities, the greedy choices, and the regrets.

    A regret says by how much the greedy choice is likelier than the generated token.
    """

    prompt_logprobs: list[float]
    logprobs: list[float]
    greedy: list[int]
    regrets: list[float]


HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


Stored = Callable[[torch.Tensor], torch.Tensor]
"""A function from keys or values `[batch, heads, tokens, head_size]` to a cache's numbers."""


@dataclass(frozen=True)
class Cache:
    """A KV cache that does not hold what is written to it."""

    keys: Stored
    values: Stored


def score(
    checkpoint: str, answer: Answer, arithmetic: str = "exact", cache: Cache | None = None
) -> Scores:
    """Teacher-force `answer` through transformers in one pass; its prompt too, if it was scored.

    If every generated token is the greedy choice after the ones before it, then greedy generation
    would have given these tokens.

    Args:
        arithmetic: how a checkpoint with `activations.json` is computed. "exact": what it means.
            "float32": the layers' sums carry the rounding errors of float32 sums, at random: two
            right engines may differ by as much, since a tie that rounds the other way changes a
            code. "float16", "bfloat16": everything is rounded to it. "unrounded": the layers'
            inputs are not rounded, which is wrong.
        cache: of a Llama, what its attention reads; without it, the keys and values themselves.
    """
    scored_prompt = len(answer.prompt_logprobs)
    prompt, tokens = tuple(answer.prompt), tuple(answer.tokens)
    return _score(checkpoint, prompt, tokens, scored_prompt, arithmetic, cache)


def answered(checkpoint: str, answer: Answer, arithmetic: str) -> Answer:
    """`answer` with the scores that transformers gives it in another arithmetic."""
    scores = score(checkpoint, answer, arithmetic)
    return replace(answer, logprobs=scores.logprobs, prompt_logprobs=scores.prompt_logprobs)


@functools.cache
def _score(
    checkpoint: str,
    prompt: tuple[int, ...],
    tokens: tuple[int, ...],
    scored_prompt: int,
    arithmetic: str,
    cache: Cache | None,
) -> Scores:
    sequence = [*prompt, *tokens]
    scored = scored_prompt + len(tokens)
    with torch.inference_mode(), attention_over(cache):
        inputs = torch.tensor([sequence[:-1]])
        model = _model(checkpoint, arithmetic)
        logits = model(inputs, logits_to_keep=scored, use_cache=False).logits[0]
        logprobs = torch.log_softmax(logits.float(), dim=-1)
    chosen = logprobs.gather(1, torch.tensor(sequence[-scored:])[:, None])[:, 0].tolist()
    best, greedy = logprobs[scored_prompt:].max(dim=-1)
    generated = chosen[scored_prompt:]
    regrets = [most - own for most, own in zip(best.tolist(), generated, strict=True)]
    return Scores(chosen[:scored_prompt], generated, greedy.tolist(), regrets)


def attention_over(cache: Cache | None) -> AbstractContextManager[Any]:
    """Let the attention of Llamas read their keys and values from `cache`."""
    from transformers.models.llama import modeling_llama

    if cache is None:
        return nullcontext()
    attend = modeling_llama.eager_attention_forward

    def read(module: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        return attend(module, query, cache.keys(key), cache.values(value), *args, **kwargs)

    return patch.object(modeling_llama, "eager_attention_forward", read)


@functools.cache
def _model(checkpoint: str, arithmetic: str) -> Any:
    from transformers import AutoModelForCausalLM

    dtype = HALVES.get(arithmetic, torch.float32)
    model = AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=dtype, attn_implementation="eager"
    )
    rounding = Path(checkpoint) / "activations.json"
    if rounding.is_file():
        weights = load_file(rounding.with_name("model.safetensors"))
        for name, how in json.loads(rounding.read_text()).items():
            layer = RoundedLinear(weights[f"{name}.weight"], arithmetic, **how)
            model.set_submodule(name, layer)
    return model.eval()


class RoundedLinear(torch.nn.Module):
    """A layer whose input is quantised first, and whose output is rounded to the model's dtype."""

    def __init__(
        self,
        weight: torch.Tensor,
        arithmetic: str,
        activations: str,
        format: str,
        input_scale: float | None,
        rotation: int = 0,
    ) -> None:
        super().__init__()
        self.values = weight.double()
        self.activations, self.format, self.rotation = activations, format, rotation
        self.input_scale = None if input_scale is None else torch.tensor([input_scale])
        if arithmetic == "unrounded":
            self.activations, self.input_scale = "rotated" if rotation else "none", None
        self.random = torch.Generator().manual_seed(1) if arithmetic == "float32" else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rounding = self.activations, self.input_scale, self.rotation
        values = round_activations(x, self.format, *rounding)
        out = values @ self.values.T
        if self.random is not None:
            # k additions, each off by up to 2^-24 of a partial sum, add up like a random walk
            error = torch.randn(out.shape, generator=self.random, dtype=out.dtype)
            out += error * 2.0**-24 * (self.values.shape[1] * out.square().mean()).sqrt()
        return out.to(x.dtype)
