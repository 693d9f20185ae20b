"""The candidate llama.cpp: its name, what its server is told, and what it is refused for."""

from __future__ import annotations

import sys
from argparse import Namespace
from contextlib import ExitStack
from functools import partial
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bench_serving.candidates import Candidate
from bench_serving.engines import Sglang
from bench_serving.llamacpp import convert
from bench_serving.llamacpp.server import settings
from bench_serving.server import Server, ServerError, differences
from bench_serving.start import start
from hk_backend import machine
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


def test_a_missing_extra_is_told_with_its_command_before_anything_starts(
    tmp_path: Path, started: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = "xllamacpp>=2026.10; extra == 'llamacpp'"
    monkeypatch.setattr(metadata, "requires", lambda name: [extra])
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    why = r"^llama\.cpp: .*xllamacpp.* -m pip install 'xllamacpp>=2026\.10'$"
    with ExitStack() as stack, pytest.raises(ServerError, match=why):
        start(stack, plan(tmp_path, "stock", "llama.cpp"), tmp_path, lambda line: None)
    assert started == []
    with ExitStack() as stack:  # nobody asked for it
        start(stack, plan(tmp_path, "stock"), tmp_path, lambda line: None)


def test_what_its_server_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own parameters: a slot for each request, room for the longest in whole steps of 256,
    and a thread on each core, or as many as there are."""
    monkeypatch.setattr(machine, "usable_cores", lambda: 7)

    def told(context: int, cores: str) -> Any:
        given = {"model": "a.gguf", "alias": "a", "host": "127.0.0.1", "port": 1, "slots": 3}
        return settings(Namespace(**given, context=context, cores=cores))

    free, bound = told(300, ""), told(256, "0, 2; 5")
    assert (free.n_parallel, free.n_ctx, bound.n_ctx) == (3, 3 * 512, 3 * 256)
    assert not free.fit_params  # else memory would decide
    for threads in (free.cpuparams, free.cpuparams_batch):
        assert (threads.n_threads, threads.mask_valid) == (7, False)
    for threads in (bound.cpuparams, bound.cpuparams_batch):
        assert (threads.n_threads, threads.mask_valid, threads.strict_cpu) == (3, True, True)
        assert {core for core, taken in enumerate(threads.cpumask) if taken} == {0, 2, 5}
