"""Runs an OpenAI server of an engine or llama.cpp as a child that never outlives this process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, get_args

import httpx

from bench_serving.engines import ENGINES, Program
from hk_backend import machine

Backend = Literal["stock", "hk", "llama.cpp"]
LLAMA_CPP: Backend = "llama.cpp"
BACKENDS: tuple[str, ...] = get_args(Backend)
ROOT = Path(__file__).parent.parent

START_SECONDS = 600
STOP_SECONDS = 20
PER_BACKEND = ("HK_BACKEND",)
"""The only variables in which the environments of two compared servers may differ."""
NOT_BOUND = "not bound"
"""Text for threads that may run on any core."""


class ServerError(RuntimeError):
    """A server did not start or died; the message ends with the last lines of its log."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@dataclass
class Server:
    """A server; `with Server(...) as server:` starts it, waits until it answers, and ends it.

    Args:
        engine: the engine, or llama.cpp.
        model: folder of a checkpoint; for llama.cpp, a GGUF file.
        backend: "stock" or "hk" of an engine, or "llama.cpp".
        dtype: value of the engine's `--dtype`.
        log: file for everything that the server prints.
        arguments: additional command-line arguments of the server.
    """

    engine: Program
    model: Path
    backend: Backend
    dtype: str
    log: Path
    arguments: Sequence[str] = ()
    port: int = field(default_factory=free_port)
    environment: dict[str, str] = field(init=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.environment = environment_of(self.engine, self.backend)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def name(self) -> str:
        """The model's name in requests."""
        return self.model.name

    def __enter__(self) -> Server:
        command = [sys.executable, "-m", "bench_serving.engine_server", self.engine.server]
        command += self.engine.server_arguments(self.model, self.name, self.dtype)
        command += ["--host", "127.0.0.1", "--port", str(self.port)]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as sink:
            self._process = subprocess.Popen(
                [*command, *self.arguments],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that one group holds its workers, too
            )
        try:
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def check_alive(self) -> None:
        """Check that the server's process is alive.

        Raises:
            ServerError: the process has ended.
        """
        if self._process is None or self._process.poll() is not None:
            code = None if self._process is None else self._process.returncode
            raise ServerError(f"the {self.backend} server ended ({code}):\n{tail(self.log)}")

    def stop(self) -> None:
        """End the server and everything that it started; a second interrupt kills at once."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            for how in (signal.SIGINT, signal.SIGTERM):
                _signal_group(process.pid, how)
                if _gone(process, STOP_SECONDS):
                    break
        finally:
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()

    @property
    def process(self) -> int:
        """The id of the server's first process.

        Raises:
            ServerError: the process has ended.
        """
        self.check_alive()
        assert self._process is not None
        return self._process.pid

    def threads(self) -> str:
        """The cores that the server's compute threads are bound to, according to its log."""
        return self.engine.cores(self.log.read_text()) or NOT_BOUND

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            self.check_alive()
            with suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/health", timeout=5).is_success:
                    return
            time.sleep(0.5)
        raise ServerError(f"no answer within {START_SECONDS} s:\n{tail(self.log)}")


def environment_of(engine: Program, backend: Backend) -> dict[str, str]:
    """The environment of a server: this process's, with settings for the engine and backend.

    Only `PER_BACKEND` differs between backends.
    """
    environment = {name: value for name, value in os.environ.items() if name not in PER_BACKEND}
    environment |= machine.workarounds()
    environment |= {"HF_HUB_OFFLINE": "1", "HK_BACKEND": "1" if backend == "hk" else "0"}
    return {**engine.environment(), **environment}


def differences(servers: Iterable[Server], asked_for: Collection[str] = ()) -> list[str]:
    """Settings that differ between servers; empty: only the backend differs.

    `asked_for`: settings among "dtype" and "arguments" that the user lets differ. The first server
    is an engine's. For llama.cpp's server, only the environment and threads are checked.
    """
    first, *others = servers
    found = []
    for other in others:
        found += _differing(first.environment, other.environment)
        shared = () if other.backend == LLAMA_CPP else ("dtype", "arguments", "model")
        for what in set(shared) - set(asked_for):
            if getattr(first, what) != getattr(other, what):
                found.append(f"{what}: {getattr(first, what)} and {getattr(other, what)}")
        if first.threads() != other.threads():
            found.append(f"threads: cores {first.threads()} and {other.threads()}")
    return found


def _differing(first: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return [
        f"{name}: {first.get(name)!r} and {other.get(name)!r}"
        for name in sorted(first.keys() | other.keys())
        if name not in PER_BACKEND and first.get(name) != other.get(name)
    ]


def relevant_environment(server: Server) -> dict[str, str]:
    """Environment variables of a server that can change its results or its speed."""
    engines = tuple(f"{name.upper()}_" for name in ENGINES)
    libraries = ("OMP_", "MKL_", "ONEDNN_", "KMP_", "GOMP_", "ATEN_", "TORCH", "LD_")
    return {
        name: value
        for name, value in sorted(server.environment.items())
        if name.startswith(("HK_", *engines, *libraries))
    }


def tail(log: Path, lines: int = 30) -> str:
    """The last lines of a log, and its path."""
    end = log.read_text(errors="replace").splitlines()[-lines:] if log.exists() else []
    return "\n".join([*end, f"(full log: {log})"])


def _signal_group(group: int, how: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, how)


def _gone(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the whole process group ends within `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        process.poll()  # reaps the leader; otherwise the group would never be empty
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False
