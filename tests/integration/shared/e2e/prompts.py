"""Prompts for the engines, and the faults that must show in the answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.integration.shared.e2e.scenario import Round, Tokens
from tests.models import random_prompts, real_prompts

MUTATIONS = ("scaled_output", "swapped_heads", "dropped_last_key", "ignored_prefix")
"""Faults of shared/e2e/mutations.py; the last one needs rows with a cached prefix."""


@dataclass(frozen=True)
class Prompts:
    """Random tokens for a tiny Llama; fewer prompts of real text for SmolLM2, which is larger."""

    model: str
    checkpoint: str

    def lengths(self) -> list[int]:
        """Lengths around every block and tile edge, and past two blocks of 128."""
        if self.model == "smollm2":
            return [1, 129, 100, 300, 33, 2]
        return [1, 2, 31, 32, 33, 127, 128, 129, 200, 333]

    def of(self, lengths: list[int]) -> list[Tokens]:
        if self.model == "smollm2":
            return real_prompts(Path(self.checkpoint), lengths)
        return random_prompts(lengths, seed=sum(lengths))


SMALL = [40, 100, 161]
"""Lengths for an engine where only its state is in question."""


def long_rounds(prompts: Prompts) -> list[Round]:
    """Rounds of chunked prefill, then of a cached prefix, then with a fault that must show."""
    chunks = prompts.of(prompts.lengths())
    return [Round(chunks), *prefix_rounds(prompts), Round(chunks, mutation="scaled_output")]


def prefix_rounds(prompts: Prompts, mutation: str = "") -> list[Round]:
    """A long prompt, and then many that begin with it and end at different places.

    `mutation`: the fault of the second round.
    """
    [text] = prompts.of([390])
    cached = len(text) - 90
    ends = [cached + more for more in (2, 3, 17, 30, 47, 61, 76, 90)]
    return [
        Round([text[:cached]], max_tokens=1, teacher_forced=False),
        Round([text[:end] for end in ends], teacher_forced=False, mutation=mutation),
    ]
