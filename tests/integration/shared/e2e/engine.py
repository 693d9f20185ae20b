"""Starts engines in a clean environment, as forks of a process that has imported them.

Then it reads what they wrote.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Future
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
from tests.proof.measured import note_engine
from tests.suite.cost import note_running
from tests.suite.held import held_to, limits

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "HK_EVIDENCE": "ignore",  # HK serves the same on all machines
    "ONEDNN_MAX_CPU_ISA": machine.ONEDNN_WITHOUT_AMX,  # alike on all machines
    "OMP_NUM_THREADS": "2",
    "OMP_WAIT_POLICY": "PASSIVE",  # two threads that spin starve whatever runs beside them
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "integration")]),  # this tree's plugins
}
HK = {"HK_BACKEND": "1"}
STEERING = ("HK_", "VLLM_", "SGLANG_", "TORCH", "OMP_", "KMP_", "PROMETHEUS_")
"""Prefixes of variables that no engine process inherits from this one."""


@dataclass(frozen=True)
class Served:
    """An engine's remains after its scenario: its result, if it came that far, and its log."""

    result: ScenarioResult | None
    log: str
    exit_code: int

    @property
    def only(self) -> ScenarioResult:
        """The result; raises AssertionError if the scenario did not come through."""
        if self.result is None or self.result.error:
            why = self.error or f"ended with {self.exit_code}"
            raise AssertionError(f"the engine {why}\n{tail(self.log)}")
        return self.result

    @property
    def error(self) -> str:
        """Why the engine did not start, in its own words; empty if it did, or said nothing."""
        return "" if self.result is None else self.result.error

    def lines(self, *words: str) -> list[str]:
        """The log's lines that hold all of `words`."""
        return [line for line in self.log.splitlines() if all(word in line for word in words)]


class Engines:
    """The engines of some scenarios, each started when a test first reads it, and then kept.

    `start` serves one scenario; `folder`: where its answers lie.
    """

    def __init__(
        self, start: Callable[[Scenario], Served], scenarios: Iterable[Scenario], folder: Path
    ) -> None:
        self._start, self._folder = start, folder
        self._scenarios: dict[str, Scenario] = {}
        self._served: dict[str, Served] = {}
        self.add(scenarios)

    def add(self, scenarios: Iterable[Scenario]) -> None:
        """Add scenarios; one whose name is known counts as the same."""
        self._scenarios |= {scenario.name: scenario for scenario in scenarios}

    def of(self, name: str) -> Served:
        """Serve the scenario `name`, if none did so before; return what its engine left behind."""
        note_engine(f"{self._folder}/{name}")
        if name not in self._served:
            self._served[name] = self._start(self._scenarios[name])
        return self._served[name]

    def __getitem__(self, name: str) -> ScenarioResult:
        """The scenario's result; raises AssertionError if the scenario did not come through."""
        return self.of(name).only


Checkpoint = Callable[[str], str]
"""A function from a model of the catalogue to its checkpoint."""
Reader = Callable[[str], Served]
"""A function from an engine's name to what it left behind; the first call starts the engine."""


class Forks:
    """The process that has imported an engine (forks.py), started with the first job.

    `module`: what it prepares. `environment`: variables for the import and every job, on top of
    `base()`, a clean environment. Jobs may come from several threads. The process ends with this
    one, if not before. The processor time of its forks then counts as this process's children's,
    and for a test as soon as a fork has ended.
    """

    def __init__(
        self,
        module: str,
        environment: dict[str, str],
        base: Callable[[], dict[str, str]] | None = None,
    ) -> None:
        self.module, self._environment = module, environment
        self._base = base or clean_environment
        self._lock = Lock()
        self._ends: dict[str, Future[tuple[int, float]]] = {}
        self._seconds = 0.0
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
        end: Future[tuple[int, float]] = Future()
        with self._lock:
            if self._connection is None:
                self._start(log.parent / "forks.txt")
            self._ends[job.log] = end
            self._connection.send(tuple(job))
        exit_code, seconds = end.result()
        with self._lock:
            self._seconds += seconds
            note_running(seconds)
        return exit_code

    def stop(self) -> None:
        """End what still runs, for a session that ends early; who waits for it gets an error."""
        with self._lock:
            if self._connection is not None:
                with suppress(BrokenPipeError):
                    self._connection.send(None)
                self._process.wait()
                note_running(-self._seconds)
                self._connection, self._seconds = None, 0.0

    def _stop_in(self, process: int) -> None:
        """Stop in `process` itself: a fork of it that ends has other things to end."""
        if os.getpid() == process:
            self.stop()

    def _start(self, log: Path) -> None:
        atexit.register(self._stop_in, os.getpid())
        self._connection, theirs = Pipe()
        with log.open("wb") as sink, theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.integration.shared.e2e.forks",
                    str(theirs.fileno()),
                    self.module,
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
        """Note the ends of jobs until the process has ended."""
        try:
            while True:
                name, exit_code, seconds = connection.recv()
                self._ends.pop(name).set_result((exit_code, seconds))
        except (EOFError, ConnectionResetError):
            for end in self._ends.values():
                end.set_exception(RuntimeError(f"no more forks:\n{tail(log.read_text())}"))


def serve(
    forks: Forks, scenario: Scenario, folder: Path, environment: dict[str, str], runner: str
) -> Served:
    """Run a scenario in a fork of its own: `runner`'s `main`."""
    folder.mkdir(parents=True, exist_ok=True)
    asked, answered, log = (
        folder / f"{scenario.name}.{kind}" for kind in ("asked.json", "json", "txt")
    )
    save([scenario], asked)
    exit_code = forks.run(runner, [asked, answered], log, environment | scenario.environment)
    results = load(ScenarioResult, answered) if answered.exists() else []
    return Served(results[0] if results else None, log.read_text(), exit_code)


def clean_environment() -> dict[str, str]:
    """This process's environment, without what would steer an engine or HK, plus `ENVIRONMENT`.

    It also holds engines to the instruction set of the tests.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(STEERING)}
    if machine.advertises_amx():
        kept["TEST_HIDE_AMX"] = "1"
    return {**kept, **ENVIRONMENT, **limits(held_to())}


def tail(log: str, lines: int = 40) -> str:
    return "\n".join(log.splitlines()[-lines:])
