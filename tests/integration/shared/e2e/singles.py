"""Engines that run in one variant only, in processes and environments of many kinds.

HK must work in some. In the others it must step aside: the engine serves, and a line says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.integration.shared.e2e.compare import (
    assert_not_loaded,
    assert_routed,
    assert_true_answers,
    assert_true_logprobs,
)
from tests.integration.shared.e2e.engine import HK, Reader, Served
from tests.integration.shared.e2e.prompts import SMALL, Prompts, long_rounds
from tests.integration.shared.e2e.scenario import Round, Scenario, ScenarioResult
from tests.models import TINY_LAYERS, random_prompts


@dataclass(frozen=True)
class Single:
    """One engine over a tiny Llama.

    `long`: it serves chunks, a cached prefix and, with HK, a fault; else one small round for each
    of `mutations`. `decodes`: more than the token that a prefill ends with.
    """

    environment: dict[str, str]
    engine: dict[str, Any] = field(default_factory=dict)
    sabotage: str = ""
    mutations: tuple[str, ...] = ("",)
    dtype: str = "float32"
    long: bool = False
    decodes: bool = True

    def asked(self, name: str, model: str, engine: dict[str, Any]) -> Scenario:
        """The scenario `name`, with these arguments beside its own."""
        prompts = random_prompts(SMALL, seed=9)
        rounds = [Round(prompts, max_tokens=4, mutation=fault) for fault in self.mutations]
        if self.long:
            rounds = long_rounds(Prompts("tiny-64", model))
        if not self.decodes:
            rounds = [replace(item, max_tokens=1) for item in rounds]
        if "HK_BACKEND" not in self.environment:
            rounds = [replace(item, mutation="") for item in rounds]
        engine = {**engine, **self.engine}
        return Scenario(name, model, rounds, self.dtype, engine, self.sabotage, self.environment)


REFUSALS: dict[str, tuple[Single, Sequence[str]]] = {
    "bad-backend": (
        Single({"HK_BACKEND": "atention"}),
        ["HK_BACKEND='atention'", "0, 1", "attention"],
    ),
    "bad-values": (
        Single(HK | {"HK_DEVICE": "gpu", "HK_CHECK": "7", "HK_STRICT": "maybe"}),
        ["HK_DEVICE='gpu'", "cpu:avx512", "HK_CHECK='7'", "HK_STRICT='maybe'"],
    ),
    "no-such-device": (
        Single(HK | {"HK_DEVICE": "hip"}),
        ["HK_DEVICE=hip", "no HIP runtime"],
    ),
    "extension-missing": (
        Single(HK, sabotage="extension_missing"),
        ["hk_backend._cpu", "cannot be loaded"],
    ),
    "extension-raises": (
        Single(HK, sabotage="extension_raises"),
        ["RuntimeError: the extension is broken on purpose"],
    ),
}
"""Engines with something in HK's way, and the words of the line that says so."""
WORDS = {name: words for name, (_, words) in REFUSALS.items()}
TWO_ROUTES = ("no-such-device", "extension-missing", "extension-raises")
"""Obstacles to attention and linear layers, or to prefill and decode. Each route has its line."""
SINGLES = {
    "backend-unset": Single({}),
    "backend-0": Single({"HK_BACKEND": "0", "HK_DEVICE": "nonsense", "HK_CHECK": "1"}),
    **{name: single for name, (single, _) in REFUSALS.items()},
    "engine-unknown": Single(HK, sabotage="engine_outside_contract"),
    "strict": Single(HK | {"HK_STRICT": "1"}, sabotage="extension_missing"),
    "checked": Single(HK | {"HK_CHECK": "1"}, mutations=("", "scaled_output", "")),
}
"""Engines for the tests of either plugin."""


def assert_stock(found: Served, without_plugin: Served) -> None:
    """Hold that the answers are, bit for bit, those of an engine without the plugin.

    The log says nothing of HK, and nothing of HK is imported.
    """
    assert_not_loaded(found.only)
    assert found.only.rounds[-1].workers[0].modules, "the plugin's entry point never ran"
    assert without_plugin.only.rounds[-1].workers[0].modules == []
    for ours, theirs in zip(found.only.rounds, without_plugin.only.rounds, strict=True):
        assert ours.answers == theirs.answers
    assert not found.lines("hk_backend")


def assert_serves_and_says_why(name: str, words: Sequence[str], engine: Served, truth: str) -> None:
    """Hold that the engine alone answers correctly, and logs a line for each route's reason."""
    result = engine.only
    for item in result.rounds:
        assert_true_answers(item.answers, truth)
    for worker in result.rounds[-1].workers:
        assert worker.routes.get("attention", {}).get("tokens", 0) == 0
    lines = [line for line in engine.lines("hk_backend:") if "by HK" not in line]
    assert len(lines) == (2 if name in TWO_ROUTES else 1), lines
    for word in words:
        assert all(word in line for line in lines), lines
    if name == "extension-raises":
        assert_counted(result)


def assert_counted(result: ScenarioResult) -> None:
    """Hold that the route is off with its reason, and every prefill token is counted under it."""
    [worker] = result.rounds[-1].workers
    attention = worker.routes["attention"]
    scheduled = worker.layers * sum(
        batch.prefill_tokens for item in result.rounds for batch in item.batches or []
    )
    assert not attention["on"]
    assert "broken on purpose" in attention["why"]
    assert sum(tally["tokens"] for tally in attention["fallbacks"].values()) == scheduled > 0


def assert_checked(engine: Served, truth: str, *words: str) -> None:
    """Hold that HK_CHECK=1 lets a healthy kernel pass, and no output of a faulty one.

    The log then has these words.
    """
    healthy, faulty, after = engine.only.rounds
    for item in (healthy, faulty, after):
        assert_true_answers(item.answers, truth)
    first, second, third = (item.workers[0].routes["attention"] for item in engine.only.rounds)
    assert first["on"]
    assert first["routed_share"] == 1
    assert first["checked_calls"] == first["calls"] > 0
    assert 0 < first["max_check_error"] < 1e-5
    assert faulty.workers[0].mutated_calls == 1, "the route was not switched off at once"
    assert not second["on"]
    assert 0.01 < second["max_check_error"] < 0.03, "the outputs were scaled by 1.02"
    assert third["calls"] == second["calls"]
    [line] = engine.lines(*words, "HK_CHECK", "head size 64")
    assert "query lengths" in line


def assert_long(engine: Served, ranks: int, truth: str) -> None:
    """Hold the results of `long_rounds`: chunked prefill, a cached prefix, and a fault that shows.

    Every rank has them. At shutdown each process that computed logs a line with its own tokens.
    """
    chunks, _, prefix, faulty = engine.only.rounds
    assert len(faulty.workers) == ranks
    assert_routed(engine.only)
    for item in (chunks, prefix):
        assert_true_answers(item.answers, truth)
    assert all(answer.cached_tokens >= 256 for answer in prefix.answers)
    assert all(worker.mutated_calls for worker in faulty.workers)
    with pytest.raises(AssertionError, match="log-probability"):
        assert_true_logprobs(faulty.answers, truth)
    lines = engine.lines("hk_backend:", "prefill tokens by HK")
    assert len(lines) == ranks, lines
    for worker in faulty.workers:
        tokens = worker.routes["attention"]["tokens"]
        assert all(f" {tokens} prefill tokens by HK (100.0%)" in line for line in lines)


def assert_ranks_measured(served: Reader, truth: str) -> None:
    """Hold that one rank measures, and both have its answer, whatever it is on this machine."""
    engine = served("measured-ranks")
    first, second = (worker.routes for worker in engine.only.rounds[-1].workers)
    for counted in ("layers", "layers_left"):
        assert first["linear"][counted] == second["linear"][counted]
    total = first["linear"]["layers"] + sum(first["linear"]["layers_left"].values())
    assert total == 4 * TINY_LAYERS + 1
    assert first["attention"]["fallbacks"].keys() == second["attention"]["fallbacks"].keys()
    [line] = engine.lines("hk_backend: measured 4 kinds of linear layers")
    assert " and 1 of attention in " in line
    for item in engine.only.rounds:
        assert_true_answers(item.answers, truth)
