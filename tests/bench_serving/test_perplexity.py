"""`bench_serving perplexity`: which tokens are scored, after which context, and how rows
compare."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench_serving import counters, perplexity
from bench_serving.candidates import Candidate
from bench_serving.counters import RouteTotals
from bench_serving.engines import Vllm
from bench_serving.perplexity import (
    PerplexityPlan,
    PerplexityResult,
    PlanError,
    measure,
    scores_of,
    table,
)
from bench_serving.server import ServerError
from hk_backend.engine.evidence import SLOWER
from hk_backend.quantize.text import WINDOW, Text
from hk_backend.routing.routes import Tally

TOKENS = [(7 * place) % 1009 for place in range(3 * WINDOW)]


class Client:
    """A model whose loss is a thousandth of the token's id."""

    def __init__(self, *_: Any) -> None:
        self.asked: list[list[int]] = []

    def logprobs(self, tokens: Sequence[int]) -> list[float]:
        self.asked.append(list(tokens))
        return [-token / 1000 for token in tokens[1:]]


def plan(tmp_path: Path, **changes: Any) -> PerplexityPlan:
    settings: dict[str, Any] = {
        "engine": Vllm(),
        "models": [tmp_path / "first", tmp_path / "second"],
        "candidates": [Candidate.parse("hk")],
        "dtype": "bfloat16",
        "text": tmp_path / "text.txt",
        "skip": 100,
        "tokens": 2000,
    }
    return PerplexityPlan(**{**settings, **changes})


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """The tokens of the text, by model: each model has its own tokenizer."""
    found = {"first": list(TOKENS), "second": list(TOKENS)}
    for name in found:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    read = lambda path, model: Text("", found[model.name])  # noqa: E731
    monkeypatch.setattr(perplexity, "read_text", read)
    return found


@pytest.mark.parametrize("count", [2, 700, WINDOW, WINDOW + 1, 3 * WINDOW])
def test_every_token_but_the_first_is_scored_once(count: int) -> None:
    client = Client()
    assert scores_of(client, TOKENS[:count]) == [-token / 1000 for token in TOKENS[1:count]]  # type: ignore[arg-type]
    assert max(map(len, client.asked)) <= WINDOW


def test_a_score_that_is_not_a_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "logprobs", lambda self, tokens: [-1.0, math.nan, -1.0])
    with pytest.raises(ServerError, match="token 2: its log-probability is not finite"):
        scores_of(Client(), TOKENS[:4])  # type: ignore[arg-type]


def test_rows_are_compared_token_by_token() -> None:
    """The ratio is that of the perplexities; its error is that of the differences, not of the
    losses."""
    first = PerplexityResult("a", "hk", 1, [-5.0, -1.0, -3.0, -2.0])
    second = PerplexityResult("b", "hk", 1, [-5.1, -1.1, -3.1, -2.3])
    second.compare(first)
    assert second.ratio == pytest.approx(second.perplexity / first.perplexity)
    deviation = math.sqrt((3 * 0.05**2 + 0.15**2) / 3)
    assert second.spread == pytest.approx(second.ratio * deviation / 2)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> list[RouteTotals]:
    """Servers that start at once. They report what HK has computed after each reading, and repeat
    the last report."""
    readings = [RouteTotals(), RouteTotals(served=Tally(1, 5))]

    @contextmanager
    def start(self: Candidate, engine: Any, model: Path, *_: Any) -> Iterator[Any]:
        yield type("Fake", (), {"url": model.name, "backend": self.backend, "log": "the log"})()

    monkeypatch.setattr(Candidate, "server", start)
    monkeypatch.setattr(perplexity, "Client", Client)
    read = lambda url: {"linear": readings[0] if len(readings) == 1 else readings.pop(0)}  # noqa: E731
    monkeypatch.setattr(counters, "read", read)
    return readings


def test_what_is_written(
    tmp_path: Path, text: dict[str, list[int]], servers: list[RouteTotals]
) -> None:
    servers += [RouteTotals(served=Tally(2, 9))]
    rows = measure(plan(tmp_path, candidates=[Candidate.parse("stock")]), tmp_path / "out", print)
    assert [row.ratio for row in rows] == [1.0, 1.0]
    written = json.loads((tmp_path / "out/perplexity.json").read_text())
    expected = math.exp(sum(TOKENS[101:2101]) / 1000 / 2000)
    assert [row["perplexity"] for row in written["rows"]] == pytest.approx([expected] * 2)
    assert table(rows) in (tmp_path / "out/perplexity.md").read_text()


def test_a_route_of_which_hk_computes_nothing_is_an_error(
    tmp_path: Path, text: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch, servers: Any
) -> None:
    """A route of which HK computes nothing is an error, even if another route was served. It is
    none where a measurement found the engine faster."""
    nothing, served = RouteTotals(), RouteTotals(Tally(1, 5))
    left, slower = (
        RouteTotals(fallbacks={why: Tally(1, 5)}) for why in ("not packed", f"{SLOWER} faster")
    )
    for routes in ({"linear": nothing}, {"attention": served, "linear": left}):
        monkeypatch.setattr(counters, "read", lambda url, routes=routes: routes)
        with pytest.raises(ServerError, match="HK computed nothing of linear"):
            measure(plan(tmp_path), tmp_path / "out", print)
    routes = {"attention": served, "linear": slower}
    monkeypatch.setattr(counters, "read", lambda url: routes)
    assert len(measure(plan(tmp_path), tmp_path / "out", print)) == 2


SHORT = '{"max_position_embeddings": 512}'


@pytest.mark.parametrize(
    ("changes", "config", "why"),
    [
        ({"tokens": 2972}, "{}", r"--skip 100, --tokens 2972: .*text.txt has 3072 .*at most 2971"),
        ({"names": ["first", "other/first"]}, "{}", "two folders have the name first"),
        ({}, "", r"second has no config\.json"),
        ({}, SHORT, r"second sees 512 tokens: expected 2048 or more"),
        ({"other_tokens": True}, "{}", "different tokens"),
    ],
)
def test_a_plan_that_cannot_be_carried_out(
    changes: dict[str, Any], config: str, why: str, tmp_path: Path, text: dict[str, list[int]]
) -> None:
    """A plan that cannot be carried out is refused before a server starts."""
    changes = dict(changes)
    (tmp_path / "second/config.json").write_text(config)
    if not config:
        (tmp_path / "second/config.json").unlink()
    if changes.pop("other_tokens", False):
        text["second"][500] += 1
    models = [tmp_path / name for name in changes.pop("names", ["first", "second"])]
    with pytest.raises(PlanError, match=why):
        measure(plan(tmp_path, models=models, **changes), tmp_path / "out", print)
