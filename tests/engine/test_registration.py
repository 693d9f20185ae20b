"""Registration of routes in a process.

Each obstacle is one line in the log, or one error with HK_STRICT=1. Also memory that a process on
the host keeps after a free, and counters in the log at shutdown.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hk_backend.config import get_config
from hk_backend.engine import loaded, report
from hk_backend.engine.loaded import TUNABLES, USERS_CHOICE, keep_freed_memory
from hk_backend.engine.registration import Plugin, RegisterError
from hk_backend.engine.strict import StrictError, refuse
from hk_backend.routing import metrics
from hk_backend.routing.routes import routes


@pytest.fixture(autouse=True)
def attention_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HK_BACKEND", "attention")


class Lines(logging.Handler):
    """A stand-in for an engine's log handler: it keeps the lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


@pytest.fixture
def engine_log() -> Iterator[Lines]:
    logger, handler = logging.getLogger("an_engine"), Lines()
    logger.propagate = False  # like vLLM's logger: nothing reaches the root
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def plugin(patch: pytest.MonkeyPatch, register: Callable[[], str] = lambda: "") -> Plugin:
    """The plugin of an engine with one route."""
    install = SimpleNamespace(register_attention=register)
    patch.setitem(sys.modules, "hk_engine.attention.install", install)
    logger = logging.getLogger("an_engine.plugin")
    return Plugin("Engine", logger, "hk_engine", lambda: False)


def broken() -> str:
    raise ImportError("no kernels")


def test_an_unknown_variable_is_named(engine_log: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HK_DEVIC", "cpu")
    plugin(monkeypatch).register_routes()
    said = "HK_DEVIC is not a variable of hk_backend: did you mean HK_DEVICE?"
    assert engine_log.lines == [f"WARNING hk_backend: {said}"]


def test_decode_comes_with_attention(engine_log: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """One installation serves both routes, and its failure switches off both."""
    monkeypatch.setenv("HK_BACKEND", "attention,decode")
    plugin(monkeypatch).register_routes()
    assert engine_log.lines == []
    plugin(monkeypatch, broken).register_routes()
    [line] = engine_log.lines
    why = "HK cannot be loaded: ImportError: no kernels"
    assert line.endswith(why)
    for route in ("attention", "decode"):
        assert routes.verdict(route).why == why


@pytest.mark.parametrize(
    ("variables", "register", "why"),
    [
        ({"HK_DEVICE": "gpu"}, lambda: "", "HK_DEVICE='gpu' is not valid"),
        ({}, broken, "HK cannot be loaded: ImportError: no kernels"),
        ({}, lambda: "another version", "another version"),
    ],
)
def test_strict_ends_with_the_reason_alone(
    variables: dict[str, str],
    register: Callable[[], str],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    engine_log: Lines,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    plugin(monkeypatch, register).register_routes()
    assert [why in line for line in engine_log.lines] == [True]
    monkeypatch.setenv("HK_STRICT", "1")
    get_config.cache_clear()
    with pytest.raises(RegisterError, match=r"^HK_STRICT=1: ") as caught:
        plugin(monkeypatch, register).register_routes()
    assert why in str(caught.value)
    assert is_alone(caught.value)


def test_a_strict_refusal_is_alone_even_where_an_error_is_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HK_STRICT", "1")
    get_config.cache_clear()

    def fall_back() -> None:
        try:
            broken()
        except ImportError as error:
            refuse(str(error))

    with pytest.raises(StrictError) as caught:
        fall_back()
    assert str(caught.value) == "HK_STRICT=1: attention would fall back: no kernels"
    assert is_alone(caught.value)


def is_alone(error: BaseException) -> bool:
    """Whether its traceback shows no other error."""
    return error.__cause__ is None and (error.__suppress_context__ or error.__context__ is None)


FAULTS = """
import ctypes
import resource
import sys

from hk_backend.engine.loaded import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
MIB = 1 << 20

def layer():
    buffer = libc.malloc(8 * MIB)
    ctypes.memset(buffer, 1, 8 * MIB)
    libc.free(buffer)

libc.mallopt(-3, 128 << 10) if sys.argv[1] == "trim" else None
layer()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    layer()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""A program that allocates, writes and frees 8 MiB ten times, and prints its page faults.

"trim": with glibc's first threshold, not raised by any earlier buffer.
"""
PAGES = 8 << 8


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (*USERS_CHOICE, TUNABLES):
        monkeypatch.delenv(name, raising=False)
    keep_freed_memory.cache_clear()
    yield
    keep_freed_memory.cache_clear()


def faults(how: str) -> int:
    command = [sys.executable, "-c", FAULTS, how]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_a_refused_threshold_leaves_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """A threshold for trimming alone would end glibc's own choice of the other."""
    asked: list[int] = []

    def mallopt(which: int, value: int) -> int:
        asked.append(which)
        return 0

    monkeypatch.setattr(loaded.ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    assert not keep_freed_memory()
    assert asked == [loaded.M_MMAP_THRESHOLD]


def test_pages_are_not_mapped_anew() -> None:
    assert faults("trim") >= 10 * PAGES
    assert faults("keep") < PAGES


@pytest.mark.parametrize(
    ("name", "value"),
    [*((name, "131072") for name in USERS_CHOICE), (TUNABLES, "glibc.malloc.trim_threshold=1")],
)
def test_the_users_choice_stays(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded.ctypes, "CDLL", None)  # nobody asked for it
    monkeypatch.setenv(name, value)
    assert not keep_freed_memory()


def test_a_library_without_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded.ctypes, "CDLL", lambda name: object())
    assert not keep_freed_memory()


ENGINE = """
import json, logging, multiprocessing, os, signal, sys, tempfile
from hk_backend.engine import report
from hk_backend.routing import metrics
from hk_backend.routing.routes import routes

logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)

def work():
    metrics.share()
    metrics.count("attention", "served", 90)
    metrics.count_check("attention", 2e-7)
    os.kill(os.getpid(), signal.SIGKILL)  # as engines end their processes

if __name__ == "__main__":
    assert metrics.share()
    report.at_exit("vLLM", logging.getLogger("engine"))
    if sys.argv[1] == "spawn":  # as SGLang with --enable-metrics, which removes it at exit
        directory = tempfile.TemporaryDirectory()
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory.name
    workers = [multiprocessing.get_context(sys.argv[1]).Process(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
        worker.join()
    print(json.dumps(sorted(worker.pid for worker in workers)))
"""


@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_counters_of_processes_that_were_killed(tmp_path: Path, start: str) -> None:
    """The first process, the only one to end in order, logs one line for each process."""
    script = tmp_path / "engine.py"
    script.write_text(ENGINE)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HK_")}
    command = [sys.executable, str(script), start]
    pids, *lines = subprocess.check_output(command, env=inherited, text=True).splitlines()
    said = "1 calls, 90 prefill tokens by HK (100.0%); 1 calls checked, largest error 2.00e-07"
    assert sorted(lines) == [
        f"hk_backend: process {pid}: attention: {said}" for pid in json.loads(pids)
    ]


def count_linear(**calls: int) -> None:
    """Counts one linear call of each outcome, with that many tokens."""
    for outcome, tokens in calls.items():
        metrics.count("linear", outcome, tokens)


def captured_twice() -> None:
    count_linear(served=30)
    for _ in range(2):
        count_linear(captured=512)
        metrics.count_unchecked("linear")


def layers(*reasons: str) -> None:
    for reason in reasons:
        metrics.count_layer("linear", reason)


def layer_by_layer() -> None:
    layers("", "", "", "a reason", "a reason", "another")
    count_linear(served=30, dummy=8)


def decode() -> None:
    for reason in ("", ""):
        metrics.count_layer("decode", reason)
    metrics.count("decode", "served", 9)
    metrics.count("decode", "fallback", 1, "a reason")


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (
            decode,
            "decode: 2 layers by HK; 1 calls, 9 tokens by HK (90.0%); "
            "1 calls, 1 tokens by vLLM: a reason",
        ),
        (
            lambda: layers("a reason", "a reason"),
            "linear: 0 layers by HK; 2 layers by vLLM: a reason",
        ),
        (lambda: count_linear(dummy=8), "linear: 0 calls, 0 tokens by HK; 1 dummy calls"),
        (
            captured_twice,
            "linear: 1 calls, 30 tokens by HK (100.0%); "
            "2 calls captured in graphs, whose replays are not counted; "
            "2 calls not checked: captured in graphs",
        ),
        (
            layer_by_layer,
            "linear: 3 layers by HK; 2 layers by vLLM: a reason; 1 layers by vLLM: another; "
            "1 calls, 30 tokens by HK (100.0%); 1 dummy calls",
        ),
    ],
    ids=["decode", "no layer", "dummy runs", "graphs", "layer by layer"],
)
def test_a_line(
    count: Callable[[], None], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line shows counters from zero, in files of the test's own."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setattr(metrics, "_files", metrics._Files())
    count()
    [(_, found)] = metrics.processes()
    assert report.lines(found, "vLLM") == [said]
