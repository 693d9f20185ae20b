"""What the rows of a call see and what becomes of its scores: the mask of the kernels that it
takes, and what no kernel computes, by name. A request and a call are asked alike.
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
"""Of the scores: they are off by 2^-22 of it at most, here no more than fp16 rounds a weight."""


UNLIKE: Mapping[str, str] = {ANY_PAGES: "blocks of no multiple of 16 tokens"}
"""How keys lie that not all masks have kernels for."""


class Refused(NamedTuple):
    """An argument, and what of it the kernels do not compute."""

    argument: str
    what: str

    def __str__(self) -> str:
        return f"{self.argument} {self.what}"


@dataclass(frozen=True, slots=True)
class Masking:
    """The arguments that decide it. Windows, sinks, and one of soft cap and ALiBi go together."""

    causal: bool
    sliding_window: int | None
    logits_soft_cap: float | None
    has_sinks: bool
    has_alibi: bool

    @classmethod
    def of_request(cls, of: AttentionRequest) -> Masking:
        """Of what a layer will ask for."""
        return cls(of.causal, of.sliding_window, of.logits_soft_cap, of.has_sinks, of.has_alibi)

    @classmethod
    def of_call(cls, of: AttentionArguments) -> Masking:
        """Of a call."""
        has_sinks, has_alibi = of.sinks is not None, of.alibi_slopes is not None
        return cls(of.causal, of.sliding_window, of.logits_soft_cap, has_sinks, has_alibi)

    @property
    def mask(self) -> str:
        """The kernels' fact (hk_backend/kernels/masks.py)."""
        if self.logits_soft_cap:
            return CAPPED
        if self.has_alibi:
            return ALIBI
        return WINDOW if self.sliding_window or self.has_sinks else NO_MASK

    @property
    def argument(self) -> str:
        """The one that calls for this mask."""
        if self.logits_soft_cap:
            return "logits_soft_cap"
        if self.has_alibi:
            return "alibi_slopes"
        return "sliding_window" if self.sliding_window else "sinks"

    def refusal(self) -> Refused | None:
        """What no kernel computes, wherever keys and values lie; None: all is computed."""
        cap = self.logits_soft_cap or 0.0
        if self.sliding_window and not self.causal:
            return Refused("sliding_window", "that is not causal")
        if cap and self.has_alibi:
            return Refused("logits_soft_cap", "with alibi_slopes")
        if cap > LARGEST_CAP:
            return Refused("logits_soft_cap", f"{cap:g}, above {LARGEST_CAP:g}")
        if self.has_alibi and not self.causal:
            return Refused("alibi_slopes", "that are not causal")
        return None

    def missing(self, family: Family, stored: object, facts: Mapping[str, Fact]) -> Refused:
        """Which of a call's `facts`, with keys and values in `stored`, no kernel of `family` has
        with this mask, where there are some without it."""
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
        return Refused(self.argument, f"with {UNLIKE.get(str(facts['keys']), facts['keys'])}")
