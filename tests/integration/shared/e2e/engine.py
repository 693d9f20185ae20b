"""Starts engines in a clean environment, as forks of a process that has imported them, and reads
what they wrote."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from hk_backend import machine
from tests.integration.shared.e2e.forks import Job
from tests.integration.shared.e2e.scenario import Scenario, ScenarioResult, load, save
from tests.models import ROOT
from tests.suite.held import held_to, limits

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "HK_EVIDENCE": "ignore",  # HK serves the same on all machines
    "ONEDNN_MAX_CPU_ISA": machine.ONEDNN_WITHOUT_AMX,  # and TEST_HIDE_AMX: the same on all machines
    "OMP_NUM_THREADS": "2",
    "OMP_WAIT_POLICY": "PASSIVE",  # two threads that spin starve whatever runs beside them
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "integration")]),  # this tree's plugins
}
HK = {"HK_BACKEND": "1"}
STEERING = ("HK_", "VLLM_", "SGLANG_", "TORCH", "OMP_", "KMP_", "PROMETHEUS_")
"""How the variables begin that no engine process inherits from this one."""


@dataclass(frozen=True)
class Served:
    """What the engines of some scenarios left behind: a result for each, and their logs."""

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


Checkpoint = Callable[[str], str]
"""From a model of the catalogue to its checkpoint."""
Reader = Callable[[str], Served]
"""From a name in an engine's list of its processes to what that one answered; waits for it."""


class Forks:
    """The process that has imported an engine (forks.py), started with the first job.

    `module`: what it prepares. `environment`: on top of `base()`, a clean one, for the import
    and every job.
    Jobs may come from several threads. It ends with this process, if not before.
    """

    def __init__(
        self,
        module: str,
        environment: dict[str, str],
        base: Callable[[], dict[str, str]] | None = None,
    ) -> None:
        self._module, self._environment = module, environment
        self._base = base or clean_environment
        self._lock = Lock()
        self._ends: dict[str, Future[int]] = {}
        self._connection: Any = None

    def run(
        self,
        module: str,
        arguments: list[Path],
        log: Path,
        environment: dict[str, str],
        timeout: int = 900,
    ) -> int:
        """Call `main(*arguments)` of `module` in a fork; its exit code."""
        environment = self._base() | self._environment | environment
        job = Job(module, [str(path) for path in arguments], str(log), environment, timeout)
        end: Future[int] = Future()
        with self._lock:
            if self._connection is None:
                self._start(log.parent / "forks.txt")
            self._ends[job.log] = end
            self._connection.send(tuple(job))
        return end.result()

    def stop(self) -> None:
        """End what still runs, for a session that ends early; who waits for it gets an error."""
        with self._lock:
            if self._connection is not None:
                with suppress(BrokenPipeError):
                    self._connection.send(None)
                self._process.wait()
                self._connection = None

    def _start(self, log: Path) -> None:
        self._connection, theirs = Pipe()
        with log.open("wb") as sink, theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    Job.__module__,
                    str(theirs.fileno()),
                    self._module,
                ],
                cwd=ROOT,
                env=self._base() | self._environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        Thread(target=self._note_ends, args=(self._connection, log), daemon=True).start()

    def _note_ends(self, connection: Any, log: Path) -> None:
        """Until the process has ended."""
        try:
            while True:
                name, exit_code = connection.recv()
                self._ends.pop(name).set_result(exit_code)
        except (EOFError, ConnectionResetError):
            for end in self._ends.values():
                end.set_exception(RuntimeError(f"no more forks:\n{tail(log.read_text())}"))


def serve(
    forks: Forks,
    scenarios: list[Scenario],
    folder: Path,
    environment: dict[str, str],
    runner: str,
    at_a_time: int = 1,
) -> Served:
    """Run `scenarios`, each in a fork of its own: `runner`'s `main`."""
    folder.mkdir(parents=True, exist_ok=True)

    def run(scenario: Scenario) -> Served:
        asked, answered, log = (
            folder / f"{scenario.name}.{kind}" for kind in ("asked.json", "json", "txt")
        )
        save([scenario], asked)
        own = environment | scenario.environment
        exit_code = forks.run(runner, [asked, answered], log, own)
        results = load(ScenarioResult, answered) if answered.exists() else []
        return Served({item.name: item for item in results}, log.read_text(), exit_code)

    with ThreadPoolExecutor(at_a_time) as pool:
        engines = list(pool.map(run, scenarios))
    return Served(
        {name: result for engine in engines for name, result in engine.results.items()},
        "".join(engine.log for engine in engines),
        next((engine.exit_code for engine in engines if engine.exit_code), 0),
    )


def clean_environment() -> dict[str, str]:
    """This process's environment without what would steer an engine or HK, plus `ENVIRONMENT`, and
    held to what the tests are held to."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(STEERING)}
    if machine.advertises_amx():
        kept["TEST_HIDE_AMX"] = "1"
    return {**kept, **ENVIRONMENT, **limits(held_to())}


def tail(log: str, lines: int = 40) -> str:
    return "\n".join(log.splitlines()[-lines:])
