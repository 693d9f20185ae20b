"""The mask of an attention call: keys that rows see, changes to scores, and cases without a kernel.

The same rules apply to a request, before there are tensors, and to a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hk_backend.kernels import Fact, Family
from hk_backend.kernels.masks import ALIBI, CAPPED, NO_MASK, WINDOW
from hk_backend.kernels.row_sources import ANY_PAGES
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.requests import AttentionRequest

LARGEST_CAP = 2.0**10
"""Largest soft cap. Scores are off by at most 2^-22 of the cap; here that is no more than the error
of rounding a weight to fp16."""


LAYOUT_WORDS: Mapping[str, str] = {ANY_PAGES: "blocks of no multiple of 16 tokens"}
"""Words for a layout of keys in a message; other layouts go by their name."""


class Refused(NamedTuple):
    """An argument, the case of it that the kernels do not compute, and what they do compute."""

    argument: str
    what: str
    valid: str = "None"

    def __str__(self) -> str:
        return f"{self.argument} {self.what}"


@dataclass(frozen=True, slots=True)
class Masking:
    """Arguments that decide the mask. A window and sinks combine, also with a soft cap or ALiBi."""

    causal: bool
    sliding_window: int | None
    logits_soft_cap: float | None
    has_sinks: bool
    has_alibi: bool

    @classmethod
    def of_request(cls, of: AttentionRequest) -> Masking:
        """The masking of a layer's future calls."""
        return cls(of.causal, of.sliding_window, of.logits_soft_cap, of.has_sinks, of.has_alibi)

    @classmethod
    def of_call(cls, of: AttentionArguments) -> Masking:
        """The masking of a call."""
        has_sinks, has_alibi = of.sinks is not None, of.alibi_slopes is not None
        return cls(of.causal, of.sliding_window, of.logits_soft_cap, has_sinks, has_alibi)

    @property
    def mask(self) -> str:
        """The kernels' fact `mask` (hk_backend/kernels/masks.py)."""
        if self.logits_soft_cap:
            return CAPPED
        if self.has_alibi:
            return ALIBI
        return WINDOW if self.sliding_window or self.has_sinks else NO_MASK

    @property
    def argument(self) -> str:
        """Name of the argument that calls for this mask."""
        if self.logits_soft_cap:
            return "logits_soft_cap"
        if self.has_alibi:
            return "alibi_slopes"
        return "sliding_window" if self.sliding_window else "sinks"

    def refusal(self) -> Refused | None:
        """The case that no kernel computes, whatever the layout of keys; None if there is none."""
        cap = self.logits_soft_cap or 0.0
        if self.sliding_window and not self.causal:
            return Refused("sliding_window", "that is not causal")
        if cap and self.has_alibi:
            return Refused("logits_soft_cap", "with alibi_slopes")
        if cap > LARGEST_CAP:
            return Refused(
                "logits_soft_cap", f"{cap:g}, above {LARGEST_CAP:g}", f"at most {LARGEST_CAP:g}"
            )
        if self.has_alibi and not self.causal:
            return Refused("alibi_slopes", "that are not causal")
        return None

    def missing(self, family: Family, stored: object, facts: Mapping[str, Fact]) -> Refused:
        """The facts of a call that no kernel of `family` combines with this mask.

        Kernels without the mask exist for `facts`. `stored` is the dtype of keys and values, for
        the message.
        """
        having = [entry.facts for entry in family if entry.facts["mask"] == self.mask]

        def have(*names: str) -> bool:
            return any(all(has[name] == facts[name] for name in names) for has in having)

        size, codes = f"head_size {facts['head_size']}", f"keys and values in {stored}"
        if not have("head_size"):
            return Refused(self.argument, f"with {size}")
        if not have("stored"):
            return Refused(self.argument, f"with {codes}")
        if not have("head_size", "stored"):
            return Refused(self.argument, f"with {size} and {codes}")
        return Refused(self.argument, f"with {LAYOUT_WORDS.get(str(facts['keys']), facts['keys'])}")
