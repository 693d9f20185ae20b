"""SGLang's own server with HK, its processes spawned, under SGLang's own benchmark client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from bench_serving.engines import Load, Sglang
from bench_serving.server import Server
from tests.integration.hk_sglang.conftest import ENVIRONMENT
from tests.integration.hk_sglang.e2e.runner import answer
from tests.integration.shared.e2e import serving
from tests.integration.shared.e2e.engine import Checkpoint
from tests.integration.shared.e2e.scenario import Answer, Round
from tests.proof.measured import note_engine

pytestmark = pytest.mark.engine_proof

ARGUMENTS = [
    *("--chunked-prefill-size", "256", "--page-size", "16", "--random-seed", "0"),
    *("--max-total-tokens", "4096", "--max-running-requests", "8"),
]


@pytest.fixture(scope="module")
def running(checkpoint: Checkpoint, folder: Path) -> Iterator[Server]:
    """SGLang's own server."""
    with serving.server(Sglang(), checkpoint("tiny-64"), folder, ARGUMENTS, ENVIRONMENT) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    """The server, which this test reads."""
    note_engine(running.name)
    return running


def test_generate_and_benchmark_client(
    server: Server, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    serving.assert_true_completions(lambda prompt: generate(server, prompt), checkpoint("tiny-64"))
    sizes = serving.INPUT_LEN, 8, serving.PROMPTS, 4, 0
    load = Load(server.url, server.name, server.model, *sizes, tmp_path / "run")
    serving.assert_counted(server, lambda: benchmark(load))


def test_its_own_metrics(server: Server) -> None:
    """HK's plugin is loaded before SGLang prepares its counters, and must not spoil them."""
    text = httpx.get(f"{server.url}/metrics", timeout=30).text
    assert "sglang:time_to_first_token_seconds_count" in text
    assert "hk_backend_layers_total" in text


def generate(server: Server, prompt: list[int]) -> Answer:
    """One greedy completion, the prompt's own tokens scored too."""
    body = {
        "input_ids": prompt,
        "sampling_params": {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True},
        "return_logprob": True,
        "logprob_start_len": 0,
    }
    response = httpx.post(f"{server.url}/generate", json=body, timeout=120)
    response.raise_for_status()
    return answer(prompt, response.json(), Round([prompt]))


def benchmark(load: Load) -> dict[str, object]:
    """Run SGLang's serving benchmark against the server; its own report."""
    engine = Sglang()
    serving.run_client(["-m", engine.client, *engine.client_arguments(load)], ENVIRONMENT)
    return engine.read_result(load.result)
