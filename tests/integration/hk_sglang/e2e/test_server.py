"""SGLang's own server with HK, its processes spawned, under SGLang's own benchmark client."""

from __future__ import annotations

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

ARGUMENTS = [
    *("--chunked-prefill-size", "256", "--page-size", "16", "--random-seed", "0"),
    *("--max-total-tokens", "4096", "--max-running-requests", "8"),
]


@pytest.mark.engine_proof
def test_its_answers_its_benchmark_client_and_its_metrics(
    checkpoint: Checkpoint, folder: Path
) -> None:
    """One test serves all three, so that its record includes the server's processes."""
    model = checkpoint("tiny-64")
    with serving.server(Sglang(), model, folder, ARGUMENTS, ENVIRONMENT) as server:
        note_engine(server.name)
        serving.assert_true_completions(lambda prompt: generate(server, prompt), model)
        sizes = serving.INPUT_LEN, 8, serving.PROMPTS, 4, 0
        load = Load(server.url, server.name, server.model, *sizes, folder / "run")
        serving.assert_counted(server, lambda: benchmark(load))
        metrics = httpx.get(f"{server.url}/metrics", timeout=30).text
    assert "sglang:time_to_first_token_seconds_count" in metrics
    assert "hk_backend_layers_total" in metrics, "HK's plugin spoiled SGLang's counters"


def generate(server: Server, prompt: list[int]) -> Answer:
    """One greedy completion, with scores for the prompt's own tokens too."""
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
    """Run SGLang's serving benchmark against the server, and return the benchmark's own report."""
    engine = Sglang()
    serving.run_client(["-m", engine.client, *engine.client_arguments(load)], ENVIRONMENT)
    return engine.read_result(load.result)
