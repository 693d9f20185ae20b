"""`bench_serving perplexity`: which tokens are scored and after what, and how rows are compared."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench_serving import counters, perplexity
from bench_serving.__main__ import app
from bench_serving.candidates import Candidate
from bench_serving.counters import RouteTotals
from bench_serving.engines import ENGINES, Engine, Vllm
from bench_serving.perplexity import (
    Plan,
    PlanError,
    Row,
    bytes_of,
    measure,
    scores_of,
    table,
    tokens_of,
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


def plan(tmp_path: Path, **changes: Any) -> Plan:
    settings: dict[str, Any] = {
        "engine": Vllm(),
        "models": [tmp_path / "first", tmp_path / "second"],
        "candidates": [Candidate.parse("hk")],
        "dtype": "bfloat16",
        "text": tmp_path / "text.txt",
        "skip": 100,
        "tokens": 2000,
    }
    return Plan(**{**settings, **changes})


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """A model's tokens of the text, by the model's name."""
    found = {"first": list(TOKENS), "second": list(TOKENS)}
    for name in found:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    read = lambda path, model: Text(path, "", found[model.name])  # noqa: E731
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


def test_what_calibration_saw_is_left_out(tmp_path: Path, text: dict[str, list[int]]) -> None:
    assert tokens_of(plan(tmp_path), tmp_path / "first") == TOKENS[100:2101]


def test_a_text_that_is_too_short(tmp_path: Path, text: dict[str, list[int]]) -> None:
    message = r"--skip 100, --tokens 2972: .*text.txt has 3072 tokens, so expected at most 2971"
    with pytest.raises(PlanError, match=message):
        tokens_of(plan(tmp_path, tokens=2972), tmp_path / "first")


def test_rows_are_compared_token_by_token() -> None:
    """The ratio is of the perplexities; its error is that of the differences, not of the losses."""
    first = Row("a", "hk", 1, [-5.0, -1.0, -3.0, -2.0])
    second = Row("b", "hk", 1, [-5.1, -1.1, -3.1, -2.3])
    second.compare(first)
    assert second.ratio == pytest.approx(second.perplexity / first.perplexity)
    deviation = math.sqrt((3 * 0.05**2 + 0.15**2) / 3)
    assert second.spread == pytest.approx(second.ratio * deviation / 2)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> list[RouteTotals]:
    """Servers that start at once; what HK has computed after each reading, the last one stays."""
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


def test_hk_that_computes_nothing_is_an_error(
    tmp_path: Path, text: dict[str, list[int]], servers: list[RouteTotals]
) -> None:
    del servers[1:]
    with pytest.raises(ServerError, match="HK computed nothing of linear"):
        measure(plan(tmp_path), tmp_path / "out", print)


def test_a_route_that_fell_back_is_an_error(
    tmp_path: Path, text: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch, servers: Any
) -> None:
    """Though the other one did not; but not where the engine is faster, by measurement."""
    served, left = Tally(1, 5), {"not packed": Tally(1, 5)}
    routes = {"attention": RouteTotals(served), "linear": RouteTotals(fallbacks=left)}
    monkeypatch.setattr(counters, "read", lambda url: routes)
    with pytest.raises(ServerError, match="HK computed nothing of linear"):
        measure(plan(tmp_path), tmp_path / "out", print)
    routes["linear"] = RouteTotals(fallbacks={f"{SLOWER} faster": Tally(1, 5)})
    assert len(measure(plan(tmp_path), tmp_path / "out", print)) == 2


def test_models_that_cannot_be_told_apart(tmp_path: Path, text: dict[str, list[int]]) -> None:
    models = [tmp_path / "first", tmp_path / "other" / "first"]
    with pytest.raises(PlanError, match="two folders have the name first"):
        measure(plan(tmp_path, models=models), tmp_path / "out", print)


def test_a_folder_without_a_model(tmp_path: Path, text: dict[str, list[int]]) -> None:
    (tmp_path / "second/config.json").unlink()
    with pytest.raises(PlanError, match=r"second has no config\.json"):
        measure(plan(tmp_path), tmp_path / "out", print)


def test_a_model_with_a_short_context(tmp_path: Path, text: dict[str, list[int]]) -> None:
    """Refused before a server is started, which would fail."""
    (tmp_path / "second/config.json").write_text('{"max_position_embeddings": 512}')
    with pytest.raises(PlanError, match=r"second sees 512 tokens: expected 2048 or more"):
        measure(plan(tmp_path), tmp_path / "out", print)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
def test_servers_have_that_context(engine: Engine) -> None:
    assert any(each.endswith(f"={perplexity.CONTEXT}") for each in engine.demo_arguments)


def test_models_of_different_tokens_are_not_compared(
    tmp_path: Path, text: dict[str, list[int]]
) -> None:
    text["second"][500] += 1
    with pytest.raises(PlanError, match="different tokens"):
        measure(plan(tmp_path), tmp_path / "out", print)


def test_a_bad_backend_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("words")
    arguments = ["perplexity", str(tmp_path), "--text", str(tmp_path / "text.txt")]
    found = CliRunner().invoke(app, [*arguments, "--backends", "nobody"])
    assert found.exit_code == 2
    assert "--backends" in found.output
    assert "nobody" in found.output


def test_weights_that_the_hub_holds_twice_count_once(tmp_path: Path) -> None:
    """Mistral's folders have them in a layout of their own, too."""
    for name, size in (("model", 10), ("consolidated", 11)):
        (tmp_path / f"{name}.safetensors").write_bytes(bytes(size))
    assert bytes_of(tmp_path) == 10
