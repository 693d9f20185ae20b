"""`make demo`, `make demo-sglang`: a real Llama, stock and with HK, compared in one run.

In float32 both servers answer the same questions (greedy tokens must be equal, and every
token's log-probability within `LOGPROB_LIMIT`); in both dtypes the same prompts are timed on
both, in alternation. Whatever does not hold makes the demo fail, after the results are written.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench_serving import counters
from bench_serving.counters import RouteTotals
from bench_serving.engines import Engine
from bench_serving.idle import wait_until_idle
from bench_serving.requests import Answer, Client
from bench_serving.server import Backend, Server, differences, relevant_environment
from bench_serving.smollm2 import MODEL, ensure_checkpoint
from hk_backend import machine
from hk_backend.bench.timing import order_of_round
from hk_backend.cli import status
from hk_backend.routing.routes import Tally

QUESTIONS = (
    "What is the capital of France?",
    "Explain in one sentence why the sky is blue.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "Summarize this in one sentence: An engine that serves a language model works in two phases. "
    "In the prefill phase it reads the whole prompt at once: every token attends to all tokens "
    "before it, so the work grows with the square of the prompt's length, and the time until the "
    "first token appears is decided here. In the decode phase it produces one token at a time and "
    "reads the keys and values of all earlier tokens from a cache, so that phase is bound by "
    "memory bandwidth rather than by arithmetic. Kernels that compute the attention of the prefill "
    "phase faster therefore shorten the wait before an answer begins, most of all for long ones.",
)
ANSWER_TOKENS = 64
PROMPT_TOKENS = 1024
ROUNDS = 5
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
LOGPROB_LIMIT = 1e-3
ROUTED_SHARE = 0.99
ORDINARY_TOKENS = range(1000, 40000)
"""Token ids for timed prompts: ordinary ones, no control tokens."""


@dataclass
class Results:
    """The contents of `demo.json`, key by key."""

    model: str
    engine: dict[str, str | None]
    device: str
    routes: dict[str, Any] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    fallbacks: dict[str, Any] = field(default_factory=dict)
    layers_left: dict[str, int] = field(default_factory=dict)
    answers: list[dict[str, str]] = field(default_factory=list)
    tokens_equal: bool = False
    max_logprob_diff: float | None = None
    prefill_tok_s: dict[str, dict[str, float]] = field(default_factory=dict)
    ttft_ms: dict[str, dict[str, float]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain data; the engine's version stands under its name."""
        model, engine, *others = asdict(self).items()
        return dict([model, *engine[1].items(), *others])


class DemoError(RuntimeError):
    """The demo cannot continue; the message says why."""


def run(
    engine: Engine,
    models: Path,
    results: Path,
    prompt_tokens: int,
    rounds: int,
    console: Console,
) -> list[str]:
    """Run the demo and write `<engine.demo>.json` and `<engine.demo>-run.json` into `results`.

    Returns:
        what did not hold; empty if all is well.

    Raises:
        DemoError, FetchError, ServerError: it could not be run.
    """
    checkpoint = ensure_checkpoint(models)
    device, verdict = status.resolve_device()
    if not verdict:
        raise DemoError(verdict.why)
    found = Results(MODEL, {engine.name: engine.version}, device)
    warning = machine.busy()
    if warning:
        console.print(f"[yellow]{warning}[/yellow]")
    record: dict[str, Any] = {"warning": warning, "environment": {}, "threads": {}, "ttft_s": {}}
    totals: list[dict[str, RouteTotals]] = []
    for name, dtype in DTYPES.items():
        with ExitStack() as stack:
            servers = {
                backend: _start(stack, engine, checkpoint, backend, dtype, results, console)
                for backend in _backends()
            }
            _check_same(servers.values())
            record["environment"][name] = {b: relevant_environment(s) for b, s in servers.items()}
            record["threads"][name] = {b: s.threads() for b, s in servers.items()}
            clients = {backend: Client(server, engine) for backend, server in servers.items()}
            if name == "fp32":
                _compare_answers(clients, found, console)
            processes = [server.process for server in servers.values()]
            settle = partial(wait_until_idle, processes)
            samples = _time_prefill(clients, settle, prompt_tokens, rounds, name, console)
            record["ttft_s"][name] = samples
            for backend, seconds in samples.items():
                median = statistics.median(seconds)
                found.ttft_ms.setdefault(backend, {})[name] = round(1000 * median, 1)
                found.prefill_tok_s.setdefault(backend, {})[name] = round(prompt_tokens / median, 1)
            totals.append(counters.read(servers["hk"].url))
    _enter_totals(found, counters.add(totals))
    _print_results(found, engine, prompt_tokens, rounds, console)
    record |= {"prompt_tokens": prompt_tokens, **_machine()}
    _write(results / f"{engine.demo}.json", found.as_json())
    _write(results / f"{engine.demo}-run.json", record)
    return _failures(found)


def _backends() -> tuple[Backend, Backend]:
    return "stock", "hk"


def _start(
    stack: ExitStack,
    engine: Engine,
    model: Path,
    backend: Backend,
    dtype: str,
    results: Path,
    console: Console,
) -> Server:
    """A server that ends with `stack`, with a word on how long it took."""
    log = results / "logs" / f"{engine.demo}-{backend}-{dtype}.log"
    console.print(f"starting {engine.title}, {backend}, {dtype} ...")
    start = time.monotonic()
    server = stack.enter_context(Server(engine, model, backend, dtype, log, engine.demo_arguments))
    console.print(f"  ready after {time.monotonic() - start:.0f} s")
    return server


def _check_same(servers: Iterable[Server]) -> None:
    found = differences(servers)
    if found:
        raise DemoError(f"the servers are not comparable: {'; '.join(found)}")


def _compare_answers(clients: dict[Backend, Client], found: Results, console: Console) -> None:
    """Ask both servers everything; print HK's answers; compare tokens and log-probabilities."""
    answers: dict[Backend, list[Answer]] = {backend: [] for backend in clients}
    distances: list[float] = []
    for question in QUESTIONS:
        for backend, client in clients.items():
            answers[backend].append(client.chat(question, ANSWER_TOKENS))
        answer = answers["hk"][-1]
        found.answers.append({"question": question, "answer": answer.text})
        console.print(f"\n[bold]{escape(question)}[/bold]\n{escape(answer.text)}")
        both = answer.prompt_tokens + answer.tokens
        stock, hk = (clients[backend].logprobs(both) for backend in _backends())
        distances += [abs(a - b) for a, b in zip(stock, hk, strict=True)]
    found.tokens_equal = all(
        (a.prompt_tokens, a.tokens) == (b.prompt_tokens, b.tokens)
        for a, b in zip(answers["stock"], answers["hk"], strict=True)
    )
    # max() would pass over a NaN
    found.max_logprob_diff = max(distances) if all(map(math.isfinite, distances)) else None
    console.print()


def _time_prefill(
    clients: dict[Backend, Client],
    settle: Callable[[], bool],
    prompt_tokens: int,
    rounds: int,
    name: str,
    console: Console,
) -> dict[Backend, list[float]]:
    """Seconds to the first token of fresh random prompts, the same for each backend, in turn.

    Args:
        settle: waits until no server uses the cores; returns whether none does.
    """
    disturbed = 0
    samples: dict[Backend, list[float]] = {backend: [] for backend in clients}
    for turn in range(-1, rounds):  # round -1 warms up
        # a text, not the number: seeds 1 and -1 are the same, and a repeated prompt is cached
        prompt = random.Random(f"{name} {turn}").choices(ORDINARY_TOKENS, k=prompt_tokens)
        for backend in order_of_round(list(clients), turn):
            disturbed += not settle()
            seconds = clients[backend].time_to_first_token(prompt)
            if turn >= 0:
                samples[backend].append(seconds)
        if turn >= 0:
            latest = ", ".join(f"{b} {s[-1] * 1000:.0f} ms" for b, s in samples.items())
            console.print(
                f"{name} prefill of {prompt_tokens} tokens, {turn + 1}/{rounds}: {latest}"
            )
    if disturbed:
        said = f"{disturbed} prompts were timed while a server still used the cores"
        console.print(f"[yellow]{said}[/yellow]")
    return samples


def _enter_totals(found: Results, totals: dict[str, RouteTotals]) -> None:
    for route, total in totals.items():
        on = total.served.calls > 0
        reasons = [*total.fallbacks, *total.layers_left]
        why = "" if on else "; ".join(reasons) or "nothing was requested of it"
        found.routes[route] = {"on": on, "why": why, "routed_share": total.routed_share}
        found.routes[route]["share_of_hks"] = total.share_of_hks
        found.calls[route] = total.served.calls
        found.tokens[route] = total.served.tokens
        for reason, layers in total.layers_left.items():
            found.layers_left[reason] = found.layers_left.get(reason, 0) + layers
        for reason, tally in total.fallbacks.items():
            sums = found.fallbacks.setdefault(reason, asdict(Tally()))
            for name, count in asdict(tally).items():
                sums[name] += count


def _print_results(
    found: Results, engine: Engine, prompt_tokens: int, rounds: int, console: Console
) -> None:
    routing = Table("route", "calls", "prefill tokens", "share", title="Routing (HK servers)")
    for route, state in found.routes.items():
        share = f"{state['routed_share']:.1%}"
        routing.add_row(f"{route}: HK", str(found.calls[route]), str(found.tokens[route]), share)
    for reason, tally in found.fallbacks.items():
        calls, tokens = str(tally["calls"]), str(tally["tokens"])
        routing.add_row(f"{engine.title}: {escape(reason)}", calls, tokens, "")
    for reason, layers in found.layers_left.items():
        routing.add_row(f"{engine.title}: {escape(reason)}", f"{layers} layers", "", "")
    console.print(routing)
    speed = Table(
        "dtype",
        "",
        "stock",
        "HK",
        "HK against stock",
        title=f"Prefill of {prompt_tokens} tokens, medians of {rounds}",
    )
    for name in DTYPES:
        stock, hk = (found.ttft_ms[b][name] for b in _backends())
        speed.add_row(
            name, "time to first token", f"{stock:.0f} ms", f"{hk:.0f} ms", _ratio(stock / hk)
        )
        stock, hk = (found.prefill_tok_s[b][name] for b in _backends())
        speed.add_row(
            name, "prefill throughput", f"{stock:.0f} tok/s", f"{hk:.0f} tok/s", _ratio(hk / stock)
        )
    console.print(speed)
    same = "equal" if found.tokens_equal else "[red]different[/red]"
    console.print(
        f"float32 greedy tokens: {same}; largest difference of a log-probability: "
        f"{found.max_logprob_diff:.1e}"
    )


def _ratio(value: float) -> str:
    return f"[{'green' if value >= 1 else 'red'}]{value:.2f}x[/]"


def _failures(found: Results) -> list[str]:
    """Promises of the demo that these results break."""
    failures = []
    if not found.routes:
        failures.append("HK served nothing: the server publishes no routing counters")
    for route, state in found.routes.items():
        if state["share_of_hks"] < ROUTED_SHARE:
            failures.append(
                f"only {state['share_of_hks']:.1%} of {route}'s prefill tokens were HK's"
            )
    if not found.tokens_equal:
        failures.append("float32 greedy tokens differ between stock and HK")
    if found.max_logprob_diff is None or not found.max_logprob_diff <= LOGPROB_LIMIT:
        failures.append(
            f"log-probabilities differ by {found.max_logprob_diff}, more than {LOGPROB_LIMIT}"
        )
    return failures


def _machine() -> dict[str, Any]:
    return {
        "cpu": machine.cpu_model(),
        "cores": machine.usable_cores(),
        "versions": status.versions(),
    }


def _write(path: Path, data: dict[str, Any]) -> None:
    """Whole or not at all: an interrupted run leaves the results of the last one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(data, indent=2, allow_nan=False) + "\n")
    part.replace(path)
