"""Interfaces to an engine: how to start its server, run its client and read the results."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hk_backend.cli import known_engines, status

THROUGHPUT, TTFT, TPOT = "total_token_throughput", "median_ttft_ms", "median_tpot_ms"
"""Names of the measurements of every client, in the words of vLLM's.

They are tokens in and out per second, milliseconds to the first token, and milliseconds for each
other token.
"""


@dataclass(frozen=True)
class Load:
    """One run of an engine's benchmark client.

    Args:
        url: address of the server.
        name: the model's name in requests.
        tokenizer: folder of the checkpoint.
        input_len, output_len: tokens of each prompt and of each answer.
        prompts: number of requests of the run, all different.
        concurrency: most requests in flight at once.
        seed: seed of the random prompts.
        result: file that the client writes.
    """

    url: str
    name: str
    tokenizer: Path
    input_len: int
    output_len: int
    prompts: int
    concurrency: int
    seed: int
    result: Path


class Program(ABC):
    """A program that serves a checkpoint through the OpenAI API; objects have no state.

    `title`: its makers' spelling. `server`: the module that runs its server.
    """

    server: str

    @property
    @abstractmethod
    def title(self) -> str: ...

    @abstractmethod
    def server_arguments(self, model: Path, name: str, dtype: str) -> list[str]:
        """Arguments with which the server serves `model` as `name`, with counters on `/metrics`."""

    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """Variables that the server needs on this machine, unless they are set already."""

    @abstractmethod
    def cores(self, log: str) -> str:
        """The cores that a server bound its compute threads to, by its log; empty: to none."""


class Engine(Program):
    """An engine that HK has a plugin for.

    `name`: value of `--engine`, a key of `known_engines.ENGINES`. `client`: the module that runs
    the engine's own benchmark client. `measures_others`: whether that client needs only the OpenAI
    API. `demo`: name of the demo's result files. `demo_arguments`: arguments of the demo's servers.
    """

    name: str
    client: str
    measures_others: bool
    demo: str
    demo_arguments: Sequence[str]

    @property
    def title(self) -> str:
        return known_engines.ENGINES[self.name].title

    @property
    def version(self) -> str | None:
        """Version of the installed engine; None: it is not installed."""
        return known_engines.ENGINES[self.name].version

    @abstractmethod
    def client_arguments(self, load: Load) -> list[str]:
        """The client's command line for `load`."""

    @abstractmethod
    def read_result(self, file: Path) -> dict[str, Any]:
        """Read the client's result file.

        The result has `completed`, the number of answered requests, and measurements, among them
        `THROUGHPUT`, `TTFT` and `TPOT`.

        Raises:
            OSError, ValueError: the file is missing or damaged.
        """

    @abstractmethod
    def token_ids(self, reply: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Token ids of prompt and answer in a chat completion with `return_token_ids`."""


def options(settings: Mapping[str, object]) -> list[str]:
    """Settings as command-line arguments: `{"seed": 1}` becomes `["--seed", "1"]`."""
    return [part for name, value in settings.items() for part in (f"--{name}", str(value))]


def on_gpu() -> bool:
    """Whether an engine would serve on a GPU here."""
    return status.tensor_device() != "cpu"


def core_list() -> str:
    """The cores that this process may run on, in the form `0,1`."""
    return ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
