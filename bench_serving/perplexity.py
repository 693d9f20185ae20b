"""`python -m bench_serving perplexity`: measures perplexities of checkpoints that an engine serves.

One server after the other returns the log-probabilities of the same tokens. The windows are those
of `hk-backend quantize --text` (`hk_backend.quantize.perplexity`), so that the figures compare.
Here they include the engine's attention, its 16-bit activations and HK's packed layers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench_serving import counters
from bench_serving.candidates import Candidate
from bench_serving.engines import Engine
from bench_serving.requests import Client
from bench_serving.server import Server, ServerError
from hk_backend import machine
from hk_backend.cli import status
from hk_backend.lab.tables import markdown
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.perplexity import windows
from hk_backend.quantize.source import weight_files
from hk_backend.quantize.text import WINDOW, read_text

CONTEXT = 2048
"""Number of tokens that a server sees at once (`demo_arguments` in `bench_serving.engines`)."""


@dataclass(frozen=True)
class PerplexityPlan:
    """The checkpoints and the text to measure, checked by the command line.

    `skip`: number of tokens left out at the text's beginning, on which a method was calibrated.
    `tokens`: number of tokens measured after them.
    """

    engine: Engine
    models: Sequence[Path]
    candidates: Sequence[Candidate]
    dtype: str
    text: Path
    skip: int
    tokens: int
    server_arguments: Sequence[str] = ()


@dataclass
class PerplexityResult:
    """One checkpoint, served by one candidate.

    `scores`: log-probability of each scored token. `ratio`: perplexity over the first row's.
    `spread`: standard error of the ratio, from the tokens' paired differences.
    """

    model: str
    candidate: str
    nbytes: int
    scores: list[float] = field(repr=False)
    routed_share: float | None = None
    ratio: float = 1.0
    spread: float = 0.0

    @property
    def perplexity(self) -> float:
        return math.exp(-math.fsum(self.scores) / len(self.scores))

    def compare(self, first: PerplexityResult) -> None:
        """Set `ratio` and `spread` against the `first` row.

        The spread assumes that tokens' differences are independent. They are so only nearly, so the
        true error is somewhat larger.
        """
        count = len(self.scores)
        lost = [a - b for a, b in zip(first.scores, self.scores, strict=True)]
        mean = math.fsum(lost) / count
        variance = math.fsum((each - mean) ** 2 for each in lost) / max(count - 1, 1)
        self.ratio = math.exp(mean)
        self.spread = self.ratio * math.sqrt(variance / count)


class PlanError(RuntimeError):
    """The text or the models do not fit what was asked; the message says what would."""


def measure(
    plan: PerplexityPlan, out: Path, tell: Callable[[str], object]
) -> list[PerplexityResult]:
    """Run `plan` and write `perplexity.json` and `perplexity.md` into `out`.

    Raises:
        PlanError, hk_backend.quantize.errors.QuantizeError: the models or the text do not fit.
        ServerError: a server did not start or answer, or HK computed nothing.
    """
    check_models(plan.models)
    texts = [tokens_of(plan, model) for model in plan.models]
    if any(text != texts[0] for text in texts):
        raise PlanError("the models cut the text into different tokens: measure them apart")
    rows: list[PerplexityResult] = []
    for model in plan.models:
        for candidate in plan.candidates:
            tell(f"serving {model.name}, {candidate.name}")
            rows.append(served(plan, model, candidate, texts[0], out))
            rows[-1].compare(rows[0])
            write(plan, rows, out)  # after every row, since each takes minutes
            tell(f"{rows[-1].perplexity:.3f}, {rows[-1].ratio:.4f} of the first")
    return rows


def check_models(models: Sequence[Path]) -> None:
    """Check that models' folders have different names, and that models see enough tokens.

    Tables and logs identify a model by the name of its folder.

    Raises:
        PlanError: two names are the same, a folder has no config.json, or a model sees fewer tokens
            than `CONTEXT`.
    """
    names = [model.name for model in models]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PlanError(f"two folders have the name {twice[0]}: expected another for each")
    for model in models:
        config = model / "config.json"
        if not config.is_file():
            raise PlanError(f"{model} has no config.json: expected the folder of a checkpoint")
        seen = json.loads(config.read_text()).get("max_position_embeddings") or CONTEXT
        if seen < CONTEXT:
            raise PlanError(f"{model} sees {seen} tokens: expected {CONTEXT} or more")


def tokens_of(plan: PerplexityPlan, model: Path) -> list[int]:
    """The tokens to measure, and one before them.

    Raises:
        PlanError: the text has too few tokens.
    """
    found = read_text(plan.text, model).tokens
    if len(found) < plan.skip + plan.tokens + 1:
        raise PlanError(
            f"--skip {plan.skip}, --tokens {plan.tokens}: {plan.text} has {len(found)} tokens, "
            f"so expected at most {max(len(found) - plan.skip - 1, 0)} after that skip"
        )
    return found[plan.skip : plan.skip + plan.tokens + 1]


def served(
    plan: PerplexityPlan, model: Path, candidate: Candidate, tokens: list[int], out: Path
) -> PerplexityResult:
    """Serve `model` with `candidate` and score `tokens`."""
    log = out / "logs" / f"{model.name}-{candidate.name.replace(':', '-')}.log"
    arguments = [*plan.engine.demo_arguments, *plan.server_arguments]
    with candidate.server(plan.engine, model, plan.dtype, log, arguments) as server:
        before = counters.read(server.url)
        scores = scores_of(Client(server, plan.engine), tokens)
        share = routed(server, before)
    return PerplexityResult(model.name, candidate.name, bytes_of(model), scores, share)


def bytes_of(model: Path) -> int:
    """Bytes of the weights that are served; a folder may also hold them in another layout."""
    try:
        files = weight_files(model)
    except QuantizeError:  # no safetensors by the usual names
        files = list(model.glob("*.safetensors"))
    return sum(file.stat().st_size for file in files)


def routed(server: Server, before: dict[str, counters.RouteTotals]) -> float | None:
    """HK's share of the tokens since the counters `before`; None: the server is stock.

    Raises:
        ServerError: HK computed no token of a route, although the engine was not measured to be
            faster there.
    """
    if server.backend != "hk":
        return None
    after = counters.read(server.url)
    idle = [route for route, totals in after.items() if not totals.share_of_hks]
    if idle or not after:
        of = " or ".join(idle) or "any route"
        raise ServerError(f"HK computed nothing of {of} (full log: {server.log})")
    return counters.share_between(before, after)


def scores_of(client: Client, tokens: list[int]) -> list[float]:
    """The log-probability of every token but the first.

    Raises:
        ServerError: a log-probability is not finite.
    """
    scores: list[float] = []
    for begin, first, end in windows(len(tokens), WINDOW):
        scores += client.logprobs(tokens[begin:end])[first - begin - 1 :]
    broken = [place for place, score in enumerate(scores, 1) if not math.isfinite(score)]
    if broken:
        raise ServerError(f"token {broken[0]}: its log-probability is not finite")
    return scores


HEADINGS = ("model", "candidate", "MB", "perplexity", "of the first", "routed")


def table(rows: Sequence[PerplexityResult]) -> str:
    """A Markdown table; the second figure of a ratio is its standard error."""
    return markdown(HEADINGS, [cells(row) for row in rows])


def cells(row: PerplexityResult) -> list[str]:
    share = "" if row.routed_share is None else f"{row.routed_share:.1%}"
    ratio = f"{row.ratio:.4f} ± {row.spread:.4f}"
    return [
        row.model,
        row.candidate,
        f"{row.nbytes / 1e6:.1f}",
        f"{row.perplexity:.3f}",
        ratio,
        share,
    ]


def write(plan: PerplexityPlan, rows: Sequence[PerplexityResult], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {
        "text": plan.text.name,
        "tokens": f"{plan.tokens} after the first {plan.skip}, in windows of {WINDOW}",
        "engine": f"{plan.engine.title}, {plan.dtype}",
        "cpu": machine.cpu_model(),
        "versions": ", ".join(f"{n} {v}" for n, v in status.versions().items() if v),
        "arguments": " ".join(plan.server_arguments),
    }
    report = {**facts, "rows": [{**asdict(row), "perplexity": row.perplexity} for row in rows]}
    (out / "perplexity.json").write_text(json.dumps(report, indent=1, allow_nan=False) + "\n")
    lines = "".join(f"- {name}: {fact}\n" for name, fact in facts.items() if fact)
    (out / "perplexity.md").write_text(f"# Perplexity\n\n{lines}\n{table(rows)}\n")
