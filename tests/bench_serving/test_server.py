"""The child process that serves: it never outlives its parent, and two of them are comparable. Also
each engine's client files and answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from bench_serving import server as module
from bench_serving.engines import ENGINES, Engine, Load, Sglang, Vllm, base, sglang
from bench_serving.engines.base import THROUGHPUT, TPOT, TTFT
from bench_serving.server import Server, ServerError, differences, environment_of

ANSWERS = """
    import http.server, os, signal, subprocess, sys
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("worker", worker.pid, flush=True)
    {ignore}
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200); self.end_headers()
        def log_message(self, *_): pass
    port = int(sys.argv[sys.argv.index("--port") + 1])
    http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
IGNORES_SIGNALS = "signal.signal(2, signal.SIG_IGN); signal.signal(15, signal.SIG_IGN)"


@pytest.fixture
def a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(module, "STOP_SECONDS", 1.0)
    return Server(Vllm(), tmp_path, "stock", "float32", tmp_path / "log.txt")


def serving(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Starts the Python `code` in the place of the engine."""
    start = subprocess.Popen

    def replaced(command: list[str], **rest: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", textwrap.dedent(code), *command[3:]]
        return start(command, **rest)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(subprocess, "Popen", replaced)


def worker_of(server: Server) -> int:
    for _ in range(100):
        words = server.log.read_text().split()
        if len(words) >= 2:
            return int(words[1])
        time.sleep(0.05)
    raise AssertionError("no worker started")


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("ignore", ["", IGNORES_SIGNALS])
def test_a_server_and_its_workers_end_with_the_context(
    a_server: Server, monkeypatch: pytest.MonkeyPatch, ignore: str
) -> None:
    """The server and its workers end also after an error in the context."""
    serving(monkeypatch, ANSWERS.format(ignore=ignore))
    workers = []

    def interrupted() -> None:
        with a_server:
            workers.append(worker_of(a_server))
            a_server.check_alive()
            assert is_running(workers[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not is_running(workers[0])


def test_a_server_that_dies_while_starting_shows_its_log(
    a_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving(monkeypatch, "import sys; print('no memory left'); sys.exit(3)")
    with pytest.raises(ServerError, match=r"stock server ended \(3\)") as caught, a_server:
        pass
    assert "no memory left" in str(caught.value)
    assert str(a_server.log) in str(caught.value)


def test_a_server_that_died_since_is_noticed(
    a_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving(monkeypatch, ANSWERS.format(ignore=""))
    with a_server:
        assert a_server._process is not None
        os.killpg(a_server._process.pid, signal.SIGKILL)
        a_server._process.wait()
        with pytest.raises(ServerError, match="ended"):
            a_server.check_alive()


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
def test_only_hk_backend_differs_between_backends(
    monkeypatch: pytest.MonkeyPatch, engine: Engine
) -> None:
    monkeypatch.setenv("HK_BACKEND", "attention")  # the caller's own must not reach stock
    stock, hk = environment_of(engine, "stock"), environment_of(engine, "hk")
    assert stock.pop("HK_BACKEND") == "0"
    assert hk.pop("HK_BACKEND") == "1"
    assert stock == hk


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, []),
        ({"environment": {"OMP_NUM_THREADS": "8"}}, ["OMP_NUM_THREADS: None and '8'"]),
        ({"cores": "1"}, ["threads: cores 0, 1 and 1"]),
        ({"arguments": ("--enforce-eager",)}, ["arguments: () and ('--enforce-eager',)"]),
    ],
)
def test_differences_are_named(
    changed: dict[str, Any], found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    stock, hk = (
        Server(Vllm(), tmp_path, backend, "float32", tmp_path / f"{backend}.txt")
        for backend in ("stock", "hk")
    )
    hk.arguments = changed.get("arguments", hk.arguments)
    hk.environment.update(changed.get("environment", {}))
    stock.log.write_text("local_rank=0, core ids=[0, 1]\n")
    hk.log.write_text(f"local_rank=0, core ids=[{changed.get('cores', '0, 1')}]\n")
    assert differences((stock, hk)) == found


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


@pytest.mark.parametrize(
    ("engine", "log", "cores"),
    [
        (VLLM, "local_rank=0, core ids=[0, 1]\nlocal_rank=1, core ids=[2]\n", "0, 1; 2"),
        (SGLANG, "init_threads_binding: world_size=1, local_omp_cpuid=0-31\n", "0-31"),
        (SGLANG, "local_omp_cpuid=0,1\ninit_cpu_threads_env and shared memory ... is disabled", ""),
    ],
)  # fmt: skip
def test_bound_cores_are_read_from_the_log(engine: Engine, log: str, cores: str) -> None:
    assert engine.cores(log) == cores


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
