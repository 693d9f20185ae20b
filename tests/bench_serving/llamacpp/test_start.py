"""The candidate llama.cpp: its name, what its server is told, and what it is refused for."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bench_serving.candidates import Candidate
from bench_serving.engines import Sglang
from bench_serving.llamacpp import convert
from bench_serving.server import Server, ServerError, differences
from bench_serving.start import start
from tests.bench_serving import conftest

plan = partial(conftest.plan, dtype="bfloat16")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Server]:
    """Servers in the order of their start; nothing runs, and the engine's log names two cores."""
    servers: list[Server] = []

    def enter(server: Server) -> Server:
        server.log.parent.mkdir(parents=True, exist_ok=True)
        cores = dict(pairwise(server.arguments)).get("--cores", "")
        own = f"threads on cores [{cores}]\n"
        engine = "local_rank=0, core ids=[0, 1]\n"
        server.log.write_text(own if server.backend == "llama.cpp" else engine)
        servers.append(server)
        return server

    monkeypatch.setattr(Server, "__enter__", enter)
    monkeypatch.setattr(convert, "write_gguf", lambda model, file, form: file.write_text(form))
    return servers


def test_it_follows_the_engine_with_its_threads_and_room_for_the_load(
    tmp_path: Path, started: list[Server]
) -> None:
    names = ("llama.cpp", "stock", "llama.cpp:auto:q4_0", "hk:bfloat16:hk_mxfp4")
    load = {"input_lens": [64, 500], "output_len": 12, "concurrencies": [1, 8]}
    asked = plan(tmp_path, *names, **load, server_arguments=["--enforce-eager"])
    with ExitStack() as stack:
        servers = start(stack, asked, tmp_path / "out", lambda line: None)
        assert list(servers) == ["stock", "hk:bfloat16:hk_mxfp4", "llama.cpp", names[2]]
        assert started == list(servers.values())
        plain, quantized = servers["llama.cpp"], servers["llama.cpp:auto:q4_0"]
        assert [each.model.read_text() for each in (plain, quantized)] == ["bf16", "q4_0"]
        for each in (plain, quantized):
            told = {"--slots": "8", "--context": "512", "--cores": "0, 1"}
            assert dict(zip(each.arguments[::2], each.arguments[1::2], strict=True)) == told
        assert differences(servers.values(), asked.may_differ) == []
    assert not plain.model.exists()
    assert not list((tmp_path / "out").glob("gguf*"))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("llama.cpp:auto:hk_fp8", "QUANTIZATION of llama.cpp is q8_0 or q4_0"),
        ("llama.cpp:float32", r"in float32: llama\.cpp serves auto or bfloat16"),
        ("llama.cpp:auto:q8_0:more", "is not BACKEND"),
        ("llamacpp", r"with BACKEND of stock, hk, llama\.cpp"),
    ],
)
def test_a_name_that_it_cannot_serve_is_refused(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        Candidate.parse(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"dtype": "float32"}, r"'llama.cpp' in float32: .*named as llama\.cpp:bfloat16"),
        ({"engine": Sglang()}, "SGLang's client speaks an API"),
    ],
)
def test_a_plan_that_it_cannot_serve_is_refused_before_anything_starts(
    tmp_path: Path, started: list[Server], changes: dict[str, Any], why: str
) -> None:
    with ExitStack() as stack, pytest.raises(ServerError, match=why):
        start(stack, plan(tmp_path, "stock", "llama.cpp", **changes), tmp_path, print)
    assert started == []
