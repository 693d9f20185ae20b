"""Traffic for engines with their defaults, step by step.

A step is a batch of rows in an order that a scheduler may give it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.integration.shared.attention.rows import (
    DECODE,
    DRAFTS,
    FRESH,
    SHORT_EXTEND,
    VERIFY,
    Row,
    prefill_tokens,
)

Step = tuple[Row, ...]

TEMPLATE = 64
"""Number of tokens that begin every chat: whole pages of every engine."""
AUTO, FP8, E5M2, CHECKPOINT = "auto", "fp8", "fp8_e5m2", "checkpoint"


@dataclass(frozen=True)
class Traffic:
    """One kind of traffic.

    `template`: the first tokens, and pages, that all rows with as many cached tokens share.
    `cache`: what asks for the KV cache's dtype: nobody, the user, the checkpoint. `drafts`: the
    most that a row verifies.
    """

    name: str
    steps: tuple[Step, ...]
    template: int = 0
    cache: str = AUTO
    drafts: int = 0

    def __str__(self) -> str:
        return self.name

    def prefill(self) -> int:
        """Tokens of prompts in all steps: those of rows with more than one."""
        return sum(prefill_tokens(step) for step in self.steps) - self.verified()

    def verified(self) -> int:
        """Tokens of rows that verify drafts."""
        return sum(row.query for step in self.steps for row in step if row.verifies)


MIXED: Step = (DECODE, Row(50), Row(40, 90), FRESH)
TRAFFIC = (
    Traffic(
        "chat with a template",
        ((Row(TEMPLATE + 11),), (DECODE, Row(30, TEMPLATE), Row(9, TEMPLATE))),
        template=TEMPLATE,
    ),
    Traffic("chunked prefill", ((Row(96),), (DECODE, Row(96, 96)), (DECODE, Row(5, 192)))),
    Traffic("prefix hits", ((Row(17, 128), Row(64, 64), Row(2, 64)),)),
    Traffic("mixed batches", (MIXED, (Row(40, 90), DECODE, Row(50)))),
    Traffic("FP8 cache", (MIXED,), cache=FP8),
    Traffic("e5m2 cache", (MIXED,), cache=E5M2),
    Traffic("FP8 in the checkpoint", (MIXED,), cache=CHECKPOINT),
    Traffic(
        "speculation",
        ((VERIFY, Row(20), VERIFY, DECODE, SHORT_EXTEND, Row(40, 90)),),
        drafts=DRAFTS,
    ),
)
