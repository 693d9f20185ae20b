"""A drafter of our own, brought as vLLM has it: its `speculative_config` names the class."""

from __future__ import annotations

from typing import Any

DRAFTS = 3
"""That a row verifies."""


class FromThePrompt:
    """Drafts as n-grams do, from the request's own tokens; here always the first ones."""

    def __init__(self, vllm_config: Any) -> None:
        """Whatever the model."""

    def load_model(self, target: Any) -> None:
        """Nothing: vLLM's CPU runner asks every drafter."""

    def propose(
        self, sampled_token_ids: list[list[int]], num_tokens: Any, token_ids: Any, **_rest: Any
    ) -> list[list[int]]:
        """For each request that has sampled a token."""
        return [
            token_ids[row, :DRAFTS].tolist() if sampled else []
            for row, sampled in enumerate(sampled_token_ids)
        ]
