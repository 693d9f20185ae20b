"""Starts engine processes in a clean environment and reads what they wrote."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hk_backend import machine
from tests.e2e.scenario import Scenario, ScenarioResult, load, save
from tests.models import ROOT

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "ONEDNN_MAX_CPU_ISA": machine.ONEDNN_WITHOUT_AMX,  # and TEST_HIDE_AMX: the same on all machines
    "OMP_NUM_THREADS": "2",
    "OMP_WAIT_POLICY": "PASSIVE",  # two threads that spin starve whatever runs beside them
    "PYTHONPATH": str(ROOT),
}
HK = {"HK_BACKEND": "1"}
STEERING = ("HK_", "VLLM_", "SGLANG_", "TORCH", "OMP_", "KMP_", "PROMETHEUS_")
"""How the variables begin that no engine process inherits from this one."""


@dataclass(frozen=True)
class Served:
    """What one engine process left behind: a result per scenario, and its whole log."""

    results: dict[str, ScenarioResult]
    log: str
    exit_code: int

    def __getitem__(self, name: str) -> ScenarioResult:
        """The result of the scenario `name`; a scenario that did not come through is an error."""
        result = self.results.get(name)
        if result is None or result.error:
            why = f"ended with {self.exit_code}" if result is None else result.error
            raise AssertionError(f"{name}: the engine {why}\n{tail(self.log)}")
        return result

    @property
    def only(self) -> ScenarioResult:
        """The result of a process of one scenario."""
        [name] = self.results or [self.log]
        return self[name]

    def lines(self, *words: str) -> list[str]:
        """The log's lines that hold all of `words`."""
        return [line for line in self.log.splitlines() if all(word in line for word in words)]


def serve(
    scenarios: list[Scenario],
    folder: Path,
    environment: dict[str, str],
    runner: str,
    timeout: float = 900,
) -> Served:
    """Run `scenarios` in one process of the module `runner`, with `environment` on top of a clean
    one."""
    folder.mkdir(parents=True, exist_ok=True)
    asked, answered, log = folder / "asked.json", folder / "answered.json", folder / "log.txt"
    save(scenarios, asked)
    command = [sys.executable, "-m", runner, str(asked), str(answered)]
    with process(command, log, environment) as engine:
        engine.wait(timeout)
    results = load(ScenarioResult, answered) if answered.exists() else []
    return Served({item.name: item for item in results}, log.read_text(), engine.returncode)


_running: set[subprocess.Popen[bytes]] = set()


@contextmanager
def process(
    command: list[str], log: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """`command` in a process group of its own, which does not outlive the context."""
    with log.open("wb") as sink:
        started = subprocess.Popen(
            command,
            cwd=ROOT,
            env=clean_environment() | environment,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _running.add(started)
    try:
        yield started
    finally:
        _running.discard(started)
        stop(started)


def stop_all() -> None:
    """End what still runs, for a session that ends early; their waiting threads go on."""
    for started in list(_running):
        stop(started)


def stop(started: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the whole group, SIGKILL if that is not enough."""
    if started.poll() is None:
        os.killpg(started.pid, signal.SIGTERM)
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def clean_environment() -> dict[str, str]:
    """This process's environment without what would steer an engine or HK, plus `ENVIRONMENT`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(STEERING)}
    if machine.advertises_amx():
        kept["TEST_HIDE_AMX"] = "1"
    return {**kept, **ENVIRONMENT}


def tail(log: str, lines: int = 40) -> str:
    return "\n".join(log.splitlines()[-lines:])
