"""`make demo`, `make demo-sglang`: compares a real Llama, stock and with HK, in one run.

Both servers answer the same questions in both dtypes. In float32, greedy tokens must be equal, and
log-probabilities may differ by `LOGPROB_LIMIT`. The same prompts are timed on both servers, in
alternation. The demo fails if results break a promise; it writes them first.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from bench_serving import counters
from bench_serving.counters import RouteTotals
from bench_serving.demo_report import next_steps, print_report
from bench_serving.demo_results import DTYPES, Results
from bench_serving.engines import Engine
from bench_serving.idle import wait_until_idle
from bench_serving.requests import Answer, Client
from bench_serving.server import Backend, Server, differences, relevant_environment
from bench_serving.smollm2 import MODEL, ensure_checkpoint
from hk_backend import machine
from hk_backend.cli import status
from hk_backend.lab.bench.stopwatch import order_of_round
from hk_backend.progress import pulse

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
DECODED_TOKENS = 32
"""Tokens after the first one of each timed prompt."""
SECONDS = 30.0
"""Seconds between two lines of progress of a server's start, where there is no terminal."""
ORDINARY_TOKENS = range(1000, 40000)
"""Token ids for timed prompts, without control tokens."""


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
        promises that the results break; empty: none.

    Raises:
        DemoError, FetchError, ServerError: the demo could not be run.
    """
    checkpoint = ensure_checkpoint(models)
    device, verdict = status.resolve_device()
    if not verdict:
        raise DemoError(verdict.why)
    found = Results(MODEL, {engine.name: engine.version}, device, _machine())
    found.warnings += [warning] if (warning := machine.busy()) else []
    record: dict[str, Any] = {"environment": {}, "threads": {}, "ttft_s": {}, "tpot_s": {}}
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
            else:
                found.same_answers[name] = _count_same_answers(clients)
            processes = [server.process for server in servers.values()]
            is_idle = partial(wait_until_idle, processes)
            samples, disturbed = _time_prompts(
                clients, is_idle, prompt_tokens, rounds, name, console
            )
            if disturbed:
                said = f"{disturbed} {dtype} prompts were timed while a server still used the cores"
                found.warnings.append(said)
            first = {backend: [each[0] for each in times] for backend, times in samples.items()}
            later = {backend: [each[1] for each in times] for backend, times in samples.items()}
            record["ttft_s"][name], record["tpot_s"][name] = first, later
            for backend in samples:
                median = statistics.median(first[backend])
                found.ttft_ms.setdefault(backend, {})[name] = round(1000 * median, 1)
                found.prefill_tok_s.setdefault(backend, {})[name] = round(prompt_tokens / median, 1)
                median = statistics.median(later[backend])
                found.tpot_ms.setdefault(backend, {})[name] = round(1000 * median, 2)
            found.spread[name] = round(max(map(_spread, first.values())), 3)
            found.decode_spread[name] = round(max(map(_spread, later.values())), 3)
            totals.append(counters.read(servers["hk"].url))
            found.shares[name] = {route: each.routed_share for route, each in totals[-1].items()}
    found.enter_totals(counters.add(totals))
    print_report(found, engine, prompt_tokens, rounds, console)
    record |= {"prompt_tokens": prompt_tokens, **found.machine}
    _write(results / f"{engine.demo}.json", found.as_json())
    _write(results / f"{engine.demo}-run.json", record)
    failures = found.failures()
    for failure in failures:
        console.print(f"failed: {failure}", style="red", markup=False)
    logs = results / "logs"
    console.print(f"Results: {results / engine.demo}.json; the servers' logs: {logs}")
    for line in next_steps(engine, str(checkpoint)):
        console.print(line, soft_wrap=True, highlight=False)
    return failures


def _spread(seconds: list[float]) -> float:
    return (max(seconds) - min(seconds)) / statistics.median(seconds)


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
    """Start a server that ends with `stack`, and print how long its start took."""
    log = results / "logs" / f"{engine.demo}-{backend}-{dtype}.log"
    title = f"{engine.title} {'with HK' if backend == 'hk' else 'stock'}, {dtype}: start"
    start = time.monotonic()
    waiting = (
        console.status(title)
        if console.is_terminal
        else pulse(console, lambda: f"{title}, still running", SECONDS)
    )
    with waiting:
        server = stack.enter_context(
            Server(engine, model, backend, dtype, log, engine.demo_arguments)
        )
    minutes, seconds = divmod(round(time.monotonic() - start), 60)
    console.print(f"{title:58} {f'{minutes}:{seconds:02}':>6}", highlight=False)
    return server


def _check_same(servers: Iterable[Server]) -> None:
    found = differences(servers)
    if found:
        raise DemoError(f"the servers are not comparable: {'; '.join(found)}")


def _compare_answers(clients: dict[Backend, Client], found: Results, console: Console) -> None:
    """Ask both servers everything; print HK's answers; compare tokens and log-probabilities."""
    console.print("\nAnswers of the server with HK, float32:")
    distances: list[float] = []
    same = 0
    for question in QUESTIONS:
        answers = _ask(clients, question)
        answer = answers["hk"]
        same += _same_tokens(answers)
        found.answers.append({"question": question, "answer": answer.text})
        console.print(f"\n[bold]{escape(question)}[/bold]\n{escape(answer.text)}")
        both = answer.prompt_tokens + answer.tokens
        stock, hk = (clients[backend].logprobs(both) for backend in _backends())
        distances += [abs(a - b) for a, b in zip(stock, hk, strict=True)]
    found.same_answers["fp32"] = same
    found.tokens_equal = same == len(QUESTIONS)
    # max() would ignore NaN
    found.max_logprob_diff = max(distances) if all(map(math.isfinite, distances)) else None
    console.print()


def _count_same_answers(clients: dict[Backend, Client]) -> int:
    """Number of questions that both servers answer with the same greedy tokens."""
    return sum(_same_tokens(_ask(clients, question)) for question in QUESTIONS)


def _ask(clients: dict[Backend, Client], question: str) -> dict[Backend, Answer]:
    return {backend: client.chat(question, ANSWER_TOKENS) for backend, client in clients.items()}


def _same_tokens(answers: dict[Backend, Answer]) -> bool:
    stock, hk = (answers[backend] for backend in _backends())
    return (stock.prompt_tokens, stock.tokens) == (hk.prompt_tokens, hk.tokens)


def _time_prompts(
    clients: dict[Backend, Client],
    is_idle: Callable[[], bool],
    prompt_tokens: int,
    rounds: int,
    name: str,
    console: Console,
) -> tuple[dict[Backend, list[tuple[float, float]]], int]:
    """Time fresh random prompts on the backends in turn, the same prompts for each.

    Args:
        is_idle: function that waits until no server uses the cores; returns whether none does.

    Returns:
        seconds to the first token of each round and for each later token, by backend; and the
        number of prompts that were timed while a server still used the cores.
    """
    disturbed = 0
    samples: dict[Backend, list[tuple[float, float]]] = {backend: [] for backend in clients}
    for turn in range(-1, rounds):  # round -1 warms up
        # a text as seed: the numbers 1 and -1 give the same prompt, which would be cached
        prompt = random.Random(f"{name} {turn}").choices(ORDINARY_TOKENS, k=prompt_tokens)
        for backend in order_of_round(list(clients), turn):
            disturbed += not is_idle()
            times = clients[backend].times(prompt, DECODED_TOKENS)
            if turn >= 0:
                samples[backend].append(times)
        if turn >= 0:
            latest = ", ".join(
                f"{backend} {first * 1000:.0f} ms, then {later * 1000:.1f} ms a token"
                for backend, ((*_, (first, later))) in samples.items()
            )
            console.print(
                f"{DTYPES[name]}, {prompt_tokens} tokens, round {turn + 1} of {rounds}: {latest}"
            )
    return samples, disturbed


def _machine() -> dict[str, Any]:
    return {
        "cpu": machine.cpu_model(),
        "cores": machine.usable_cores(),
        "versions": status.versions(),
    }


def _write(path: Path, data: dict[str, Any]) -> None:
    """Write a JSON file in one rename: an interrupted run keeps the last run's results."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(data, indent=2, allow_nan=False) + "\n")
    part.replace(path)
