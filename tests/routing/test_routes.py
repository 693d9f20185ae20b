"""Verdicts, counters, the kill switch and the report; the counters of several processes as
Prometheus metrics in the one that is scraped."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hk_backend.routing import metrics, metrics_directory
from hk_backend.routing.routes import Routes
from hk_backend.terms.verdict import refused
from tests.processes import python


def test_counters_are_made_once_per_route() -> None:
    own = Routes()
    assert own.counters("attention") is own.counters("attention")
    assert own.counters("attention") is not own.counters("linear")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: own.counters("new"), range(200)))
    assert len({id(counters) for counters in found}) == 1


def test_a_disabled_route_keeps_its_first_reason() -> None:
    own = Routes()
    assert own.verdict("attention")
    assert not own.is_disabled("attention")
    assert own.disable("attention", "error exceeds the tolerance")
    assert not own.disable("attention", "something later"), "it was off: nobody says so again"
    assert own.is_disabled("attention")
    assert own.verdict("attention") == refused("error exceeds the tolerance")
    assert own.verdict("linear")
    report = own.report()["attention"]
    assert (report["on"], report["why"]) == (False, "error exceeds the tolerance")


def test_report_is_plain_data() -> None:
    own = Routes()
    counters = own.counters("attention")
    assert counters.routed_share() == 1.0
    counters.served.add(30)
    counters.fallbacks["z: last"].add(6)
    counters.fallbacks["a: first"].add(4)
    counters.dummy.add(8)
    counters.captured.add(16)
    counters.layers, counters.layers_left["a reason"] = 5, 2
    counters.checked_calls, counters.max_check_error = 2, 0.25
    counters.unchecked_calls = 3
    own.disable("attention", "because")
    report = own.report()
    assert json.loads(json.dumps(report)) == report
    assert report == {
        "attention": {
            "on": False,
            "why": "because",
            "calls": 1,
            "tokens": 30,
            "routed_share": 0.75,
            "fallbacks": {
                "a: first": {"calls": 1, "tokens": 4},
                "z: last": {"calls": 1, "tokens": 6},
            },
            "layers": 5,
            "layers_left": {"a reason": 2},
            "dummy_calls": 1,
            "dummy_tokens": 8,
            "captured_calls": 1,
            "captured_tokens": 16,
            "checked_calls": 2,
            "unchecked_calls": 3,
            "max_check_error": 0.25,
        }
    }
    assert list(report["attention"]["fallbacks"]) == ["a: first", "z: last"]


SERVER = """
import json, multiprocessing, os, sys
from hk_backend.routing import metrics
from hk_backend.routing.routes import routes

def work(which):
    metrics.share()
    metrics.count("attention", "served", 10 * which)
    metrics.count("attention", "served", 100)
    metrics.count("attention", "fallback", 7, reason='a "quoted" reason')
    metrics.count("attention", "dummy", 3)

if __name__ == "__main__":
    metrics.share()
    metrics.share()
    context = multiprocessing.get_context(sys.argv[1])
    for which in (1, 2):
        child = context.Process(target=work, args=(which,))
        child.start()
        child.join()
        assert child.exitcode == 0
    metrics.count("attention", "served", 1000)
    from prometheus_client import CollectorRegistry, generate_latest, multiprocess, REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)
    else:
        registry = REGISTRY
    lines = generate_latest(registry).decode().splitlines()
    print(json.dumps({
        "samples": dict(line.rsplit(" ", 1) for line in lines if line.startswith("hk_backend")),
        "types": [line for line in lines if line.startswith("# TYPE hk_backend")],
        "directory": os.environ.get("HK_METRICS_DIR"),
        "own": routes.report()["attention"],
    }))
"""

SERVED = '{outcome="served",reason="",route="attention"}'
FELL_BACK = '{outcome="fallback",reason="a \\"quoted\\" reason",route="attention"}'
DUMMY = '{outcome="dummy",reason="",route="attention"}'
EXPECTED = {
    f"hk_backend_calls_total{SERVED}": 5,
    f"hk_backend_tokens_total{SERVED}": 1230,
    f"hk_backend_calls_total{FELL_BACK}": 2,
    f"hk_backend_tokens_total{FELL_BACK}": 14,
    f"hk_backend_calls_total{DUMMY}": 2,
    f"hk_backend_tokens_total{DUMMY}": 6,
}


def serve(tmp_path: Path, start: str, **environment: str) -> dict:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    return answer(script, start, **environment)


def answer(*words: str | Path, **environment: str) -> Any:
    """The last line that a program prints, without the folder of this process's metrics."""
    inherited = {k: v for k, v in os.environ.items() if k != "HK_METRICS_DIR"}
    done = python(*words, env={**inherited, **environment})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_the_numbers_of_all_processes(tmp_path: Path, start: str) -> None:
    """No file is left behind. A server that another engine's process starts does not take that
    engine's directory for its own."""
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    found = serve(tmp_path, start, HK_METRICS_DIR=str(foreign), TMPDIR=str(tmp_path))
    assert not list(foreign.iterdir())
    assert Path(found["directory"]).parent == tmp_path
    assert not Path(found["directory"]).exists()
    assert {name: float(value) for name, value in found["samples"].items()} == EXPECTED
    assert found["types"] == [
        "# TYPE hk_backend_calls_total counter",
        "# TYPE hk_backend_tokens_total counter",
    ]
    assert found["own"]["tokens"] == 1000, "a process's own report is its own"


FORK = """
import os, json
from hk_backend.routing import metrics
from hk_backend.routing.routes import routes

metrics.share()
for _ in range(10):
    metrics.count("attention", "served", 3)
metrics.count_layer("linear")
routes.disable("linear", "broken")
child = os.fork()
metrics.count("attention", "served", 3)  # both: the parent's eleventh, the child's first
if child == 0:
    assert routes.counters("attention").served.calls == 1
    assert routes.counters("linear").layers == 0
    assert not routes.verdict("linear")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
found = {
    process: {sample.name: sample.value for metric in found for sample in metric.samples}
    for process, found in metrics.processes()
}
print(json.dumps([found[os.getpid()], found[child]]))
"""


def test_a_fork_after_counting_counts_from_zero() -> None:
    """The parent's counters are in its own file; each process goes on in its own."""
    calls, tokens, layers = (f"hk_backend_{what}_total" for what in ("calls", "tokens", "layers"))
    parent, child = answer("-c", FORK)
    assert parent == {calls: 11, tokens: 33, layers: 1}
    assert child == {calls: 1, tokens: 3}


def test_in_prometheus_clients_own_multiprocess_mode(tmp_path: Path) -> None:
    """vLLM turns this mode on for several API servers: their collector finds our files."""
    directory = tmp_path / "shared"
    directory.mkdir()
    found = serve(tmp_path, "spawn", PROMETHEUS_MULTIPROC_DIR=str(directory))
    assert {name: float(value) for name, value in found["samples"].items()} == EXPECTED


def test_the_first_call_of_a_process_makes_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_directory, "_shared_by", 0)
    monkeypatch.delenv(metrics_directory.VARIABLE, raising=False)
    assert metrics_directory.share()
    made = metrics_directory.own()
    assert not metrics_directory.share()
    assert made is not None
    assert metrics_directory.own() == made
    for _ in range(2):  # it may be gone already when the process ends
        metrics_directory._remove(str(made), os.getpid())
    assert metrics_directory.own() is None


def test_files_that_cannot_be_read_leave_the_engines_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(metrics_directory.VARIABLE, str(tmp_path))
    (tmp_path / f"{metrics.COUNTERS}1.db").mkdir()
    assert list(metrics._Collector().collect()) == []
    assert "counters not readable" in caplog.text


def test_a_full_disk_for_counters(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine starts without counters, and its children do not inherit another engine's."""

    def full(prefix: str) -> str:
        raise OSError(28, "No space left on device", prefix)

    monkeypatch.setenv(metrics_directory.VARIABLE, "/another")
    monkeypatch.setattr(metrics_directory, "_shared_by", 0)
    monkeypatch.setattr("tempfile.mkdtemp", full)
    assert metrics_directory.share()
    assert metrics_directory.VARIABLE not in os.environ
    assert "no counters on /metrics: [Errno 28] No space left" in caplog.text
