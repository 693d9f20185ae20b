"""What is known of each engine: what starts it, its client's files, its log, its answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench_serving.engines import ENGINES, Engine, Load, Sglang, Vllm, base, sglang
from bench_serving.engines.base import THROUGHPUT, TPOT, TTFT
from bench_serving.engines.vllm_client import apart
from hk_backend.bench.isa import ISA_LIMITS

VLLM, SGLANG = Vllm(), Sglang()
each_engine = pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))


def load(folder: Path, **changes: Any) -> Load:
    settings: dict[str, Any] = {
        "url": "http://127.0.0.1:1234", "name": "model", "tokenizer": Path("/models/model"),
        "input_len": 64, "output_len": 4, "prompts": 8, "concurrency": 2, "seed": 7,
        "result": folder / "a.json",
    }  # fmt: skip
    return Load(**{**settings, **changes})


def on(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr(base.status, "tensor_device", lambda: device)


@each_engine
def test_every_setting_of_a_load_reaches_the_client(engine: Engine, tmp_path: Path) -> None:
    plain = engine.client_arguments(load(tmp_path))
    changed = {
        "url": "http://x", "name": "other", "tokenizer": Path("/t"), "input_len": 65,
        "output_len": 5, "prompts": 9, "concurrency": 3, "seed": 8, "result": tmp_path / "b.json",
    }  # fmt: skip
    for field, value in changed.items():
        arguments = engine.client_arguments(load(tmp_path, **{field: value}))
        differing = [b for a, b in zip(plain, arguments, strict=True) if a != b]
        assert differing in ([str(value)], ["b.json"]), field


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        (VLLM, '{"completed": 4, "total_token_throughput": 9.5, "median_ttft_ms": 2}'),
        (SGLANG, '{}\n{"completed": 4, "total_throughput": 9.5, "median_ttft_ms": 2}\n'),
    ],
)  # fmt: skip
def test_a_client_s_result_has_the_same_names(engine: Engine, text: str, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(text)
    assert engine.read_result(file) == {"completed": 4, THROUGHPUT: 9.5, TTFT: 2}
    assert TPOT == "median_tpot_ms"
    file.write_text('{"completed": ')
    with pytest.raises(json.JSONDecodeError):
        engine.read_result(file)


def test_sglang_s_test_platform_is_for_machines_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on(monkeypatch, "cpu")
    monkeypatch.setattr(sglang, "entry_points", lambda **_: ["hk_cpu"])
    assert SGLANG.environment()["SGLANG_PLATFORM"] == "hk_cpu"
    assert SGLANG.environment()["OMP_NUM_THREADS"] == str(len(os.sched_getaffinity(0)))
    assert "cpu" in SGLANG.server_arguments(Path("m"), "m", "float32")
    monkeypatch.setattr(sglang, "entry_points", lambda **_: [])  # not installed: SGLang's own
    assert "SGLANG_PLATFORM" not in SGLANG.environment()
    on(monkeypatch, "cuda")
    assert SGLANG.environment() == {}
    assert "cpu" not in SGLANG.server_arguments(Path("m"), "m", "float32")


SHOWS = """
import sys, torch
print(__name__, sys.argv[1:], torch.cpu._is_avx512_supported(), torch.cpu._is_amx_tile_supported())
"""


@pytest.mark.parametrize("held", ["avx2", "avx512"])
def test_the_engine_s_module_is_run_with_its_own_arguments(tmp_path: Path, held: str) -> None:
    """And torch finds in the processor what it is held to."""
    (tmp_path / "an_engine.py").write_text(SHOWS)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    shown = subprocess.check_output(
        [sys.executable, "-m", "bench_serving.engine_server", "an_engine", "--port", "1"],
        env={**os.environ, "PYTHONPATH": path, **ISA_LIMITS[held]},
        text=True,
    )
    assert shown.startswith("__main__ ['--port', '1']")
    has_avx512, has_amx = shown.split()[-2:]
    assert has_amx == "False"
    assert held != "avx2" or has_avx512 == "False"


CHOICES = [{"text": "", "finish_reason": "length"}]
USAGE = {"completion_tokens": 32, "prompt_tokens": 512}


def test_llama_cpp_s_last_message() -> None:
    both = {"choices": CHOICES, "model": "a", "usage": USAGE}
    found = list(apart(f"data: {json.dumps(both)}"))
    assert all(message.startswith("data: ") for message in found)
    assert [json.loads(message.removeprefix("data: ")) for message in found] == [
        {"choices": CHOICES, "model": "a"},
        {"usage": USAGE},
    ]
