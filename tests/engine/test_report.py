"""Counters in the log at shutdown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hk_backend.engine import report
from hk_backend.routing import metrics

ENGINE = """
import json, logging, multiprocessing, os, signal, sys, tempfile
from hk_backend.routing import metrics
from hk_backend.engine import report

logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)

def work():
    metrics.share()
    metrics.count("attention", "served", 90)
    metrics.count("attention", "fallback", 10, reason="a reason")
    metrics.count("attention", "dummy", 5)
    metrics.count_check("attention", 2e-7)
    metrics.count_check("attention", 1e-7)
    os.kill(os.getpid(), signal.SIGKILL)  # as engines end their processes

if __name__ == "__main__":
    assert metrics.share()
    report.at_exit("vLLM", logging.getLogger("engine"))
    assert not metrics.share()
    if {own_directory}:  # as SGLang with --enable-metrics, which removes it at exit
        directory = tempfile.TemporaryDirectory()
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory.name
    workers = [multiprocessing.get_context({start!r}).Process(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
        worker.join()
    print(json.dumps(sorted(worker.pid for worker in workers)))
"""


@pytest.mark.parametrize("own_directory", [False, True])
@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_of_processes_that_were_killed(tmp_path: Path, start: str, own_directory: bool) -> None:
    """One line each, from the first process, which alone ends in order."""
    script = tmp_path / "engine.py"
    script.write_text(ENGINE.format(start=start, own_directory=own_directory))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HK_")}
    done = subprocess.run(
        [sys.executable, str(script)], env=inherited, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    pids, *lines = done.stdout.splitlines()
    first, second = json.loads(pids)
    said = (
        "attention: 1 calls, 90 prefill tokens by HK (90.0%); "
        "1 calls, 10 tokens by vLLM: a reason; "
        "1 dummy calls; 2 calls checked, largest error 2.00e-07"
    )
    assert sorted(lines) == [
        f"hk_backend: process {first}: {said}",
        f"hk_backend: process {second}: {said}",
    ]


def count_linear(**calls: int) -> None:
    """Of each kind one call with so many tokens."""
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


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (
            lambda: layers("a reason", "a reason"),
            "linear: 0 layers by HK; 2 layers by vLLM: a reason",
        ),
        (lambda: count_linear(dummy=8), "linear: 0 calls, 0 prefill tokens by HK; 1 dummy calls"),
        (
            captured_twice,
            "linear: 1 calls, 30 prefill tokens by HK (100.0%); "
            "2 calls captured in graphs, whose replays are not counted; "
            "2 calls not checked: captured in graphs",
        ),
        (
            layer_by_layer,
            "linear: 3 layers by HK; 2 layers by vLLM: a reason; 1 layers by vLLM: another; "
            "1 calls, 30 tokens by HK (100.0%); 1 dummy calls",
        ),
    ],
    ids=["no layer", "dummy runs", "graphs", "layer by layer"],
)
def test_a_line(
    count: Callable[[], None], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of counters from zero, in files of their own."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setattr(metrics, "_files", metrics._Files())
    count()
    [(_, found)] = metrics.processes()
    assert report.lines(found, "vLLM") == [said]
