"""The demo's results: the contents of its JSON file, and the promises that they break."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from bench_serving.counters import RouteTotals

DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
LOGPROB_LIMIT = 1e-3
ROUTED_SHARE = 0.99


@dataclass
class Results:
    """The contents of the demo's JSON file, key by key.

    Attributes:
        machine: processor, number of cores that the servers may use, and versions.
        warnings: reasons why the figures may mislead.
        shares: share of prefill tokens that HK computed, by dtype and route.
        answers: HK's answers in float32.
        same_answers: number of answers with the same greedy tokens as stock's, by dtype.
        tpot_ms: milliseconds for each token after the first, by backend and dtype.
        spread: (slowest - fastest) / median of the rounds' prefill, of the noisier backend, by
            dtype.
        decode_spread: the same of their decode.
    """

    model: str
    engine: dict[str, str | None]
    device: str
    machine: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    routes: dict[str, Any] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    shares: dict[str, dict[str, float]] = field(default_factory=dict)
    fallbacks: dict[str, Any] = field(default_factory=dict)
    layers_left: dict[str, int] = field(default_factory=dict)
    answers: list[dict[str, str]] = field(default_factory=list)
    same_answers: dict[str, int] = field(default_factory=dict)
    tokens_equal: bool = False
    max_logprob_diff: float | None = None
    prefill_tok_s: dict[str, dict[str, float]] = field(default_factory=dict)
    ttft_ms: dict[str, dict[str, float]] = field(default_factory=dict)
    tpot_ms: dict[str, dict[str, float]] = field(default_factory=dict)
    spread: dict[str, float] = field(default_factory=dict)
    decode_spread: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The results as plain data; the engine's version is stored under the engine's name."""
        model, engine, *others = asdict(self).items()
        return dict([model, *engine[1].items(), *others])

    def enter_totals(self, totals: dict[str, RouteTotals]) -> None:
        """Store the routing counters of all HK servers together."""
        for route, total in totals.items():
            on = total.served.calls > 0
            reasons = [*total.fallbacks, *total.layers_left]
            why = "" if on else "; ".join(reasons) or "nothing was requested of it"
            self.routes[route] = {"on": on, "why": why, "routed_share": total.routed_share}
            self.routes[route]["share_of_hks"] = total.share_of_hks
            self.calls[route] = total.served.calls
            self.tokens[route] = total.served.tokens
            for reason, layers in total.layers_left.items():
                self.layers_left[reason] = self.layers_left.get(reason, 0) + layers
            for reason, tally in total.fallbacks.items():
                sums = self.fallbacks.setdefault(reason, {"calls": 0, "tokens": 0})
                sums["calls"] += tally.calls
                sums["tokens"] += tally.tokens

    def failures(self) -> list[str]:
        """The demo's promises that these results break."""
        failures = []
        if not self.routes:
            failures.append("HK served nothing: the server publishes no routing counters")
        for route, state in self.routes.items():
            if state["share_of_hks"] < ROUTED_SHARE:
                failures.append(
                    f"only {state['share_of_hks']:.1%} of {route}'s prefill tokens were HK's"
                )
        if not self.tokens_equal:
            failures.append("float32 greedy tokens differ between stock and HK")
        if self.max_logprob_diff is None or not self.max_logprob_diff <= LOGPROB_LIMIT:
            failures.append(
                f"log-probabilities differ by {self.max_logprob_diff}, more than {LOGPROB_LIMIT}"
            )
        return failures
