"""An engine's own server with HK, over HTTP and under the engine's own benchmark client."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench_serving import counters
from bench_serving.server import Server
from tests.integration.shared.e2e.compare import ROUTED_SHARE, assert_true_answers
from tests.integration.shared.e2e.engine import HK, clean_environment
from tests.integration.shared.e2e.scenario import Answer
from tests.models import TINY_LAYERS, random_prompts
from tests.starts import note_start

PROMPTS, INPUT_LEN = 12, 200
"""Number and length of the prompts that the benchmark client sends."""


def server(
    engine: Any, model: str, folder: Path, arguments: list[str], environment: dict[str, str]
) -> Server:
    """A tiny Llama served in float32 by the engine's own server with HK_BACKEND=1."""
    made = Server(engine, Path(model), "hk", "float32", folder / "server.txt", arguments)
    made.environment = clean_environment() | environment | HK
    note_start(f"{type(engine).__name__}, its server")
    return made


def assert_true_completions(complete: Callable[[list[int]], Answer], truth: str) -> None:
    """Hold that tokens and log-probabilities over HTTP are those of transformers."""
    answers = [complete(prompt) for prompt in random_prompts([3, 130, 400], seed=5)]
    assert_true_answers(answers, truth)


def assert_counted(server: Server, run: Callable[[], Mapping[str, Any]]) -> None:
    """Run the client, and hold that `/metrics` shows HK's prefill, token by token."""
    before = counters.read(server.url).get("attention", counters.RouteTotals())
    report = run()
    assert report["completed"] == PROMPTS
    after = counters.read(server.url)["attention"]
    assert after.routed_share >= ROUTED_SHARE
    tokens = after.served.tokens - before.served.tokens
    asked = report["total_input_tokens"] * TINY_LAYERS
    assert ROUTED_SHARE * asked <= tokens <= asked


def run_client(arguments: list[str], environment: dict[str, str]) -> None:
    """Run a benchmark client with this process's Python and these arguments."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=clean_environment() | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
